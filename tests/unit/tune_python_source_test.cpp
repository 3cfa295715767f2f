// Small changes of Python source text.

#include <cstdlib>
#include <fstream>

#include "tests/support/temp_folder.hpp"
#include <gtest/gtest.h>

#include "fullwatt/tune/python_source.hpp"

namespace fullwatt::tune {
namespace {

std::string with(const std::string& source, const std::string& keyword, const std::string& value, int line = 1) {
  return with_argument(source, line, "DataLoader", keyword, value).value_or("nothing");
}

TEST(PythonSource, AnArgumentIsAddedBehindTheOthers) {
  EXPECT_EQ(with("loader = DataLoader(data, 32)\n", "num_workers", "8"),
            "loader = DataLoader(data, 32, num_workers=8)\n");
  EXPECT_EQ(with("x = DataLoader()\n", "num_workers", "8"), "x = DataLoader(num_workers=8)\n");
  EXPECT_EQ(with("DataLoader(f(a, [1, 2]), '),', {1: 2},)\n", "pin_memory", "True"),
            "DataLoader(f(a, [1, 2]), '),', {1: 2}, pin_memory=True,)\n");
  EXPECT_EQ(with("a = 1\nb = torch.utils.data.DataLoader(data)\n", "pin_memory", "True", 2),
            "a = 1\nb = torch.utils.data.DataLoader(data, pin_memory=True)\n");
}

TEST(PythonSource, AnArgumentThatIsThereGetsTheNewValue) {
  EXPECT_EQ(with("DataLoader(data, num_workers=get(2, 3), shuffle=True)", "num_workers", "8"),
            "DataLoader(data, num_workers=8, shuffle=True)");
  EXPECT_EQ(with("DataLoader(data, num_workers = 0)", "num_workers", "8"), "DataLoader(data, num_workers = 8)");
  EXPECT_EQ(with("DataLoader(data, num_workers=8)", "num_workers", "8"), "nothing") << "nothing to change";
  EXPECT_EQ(with("DataLoader(data, x == 1)", "x", "8"), "DataLoader(data, x == 1, x=8)")
      << "a comparison is no keyword";
}

TEST(PythonSource, ArgumentsOnLinesOfTheirOwnStaySo) {
  EXPECT_EQ(with("loader = DataLoader(\n    data,\n    batch_size=32,\n)\n", "num_workers", "8"),
            "loader = DataLoader(\n    data,\n    batch_size=32,\n    num_workers=8,\n)\n");
  EXPECT_EQ(with("loader = DataLoader(\n    data,\n    batch_size=32\n)\n", "num_workers", "8"),
            "loader = DataLoader(\n    data,\n    batch_size=32,\n    num_workers=8\n)\n");
  EXPECT_EQ(with("loader = DataLoader(data,\n                    batch_size=32)\n", "num_workers", "8"),
            "loader = DataLoader(data,\n                    batch_size=32, num_workers=8)\n");
}

TEST(PythonSource, WhatIsNotCertainIsLeftAlone) {
  for (const auto* source :
       {"loader = make(data)\n", "a, b = DataLoader(x), DataLoader(y)\n", "DataLoader(data, **options)\n",
        "MyDataLoader(data)\n", "DataLoader(data,  # the training's\n  32)\n", "DataLoader(data",
        "# DataLoader(data)\n", "s = 'DataLoader(data)'\n", ""}) {
    EXPECT_EQ(with(source, "num_workers", "8"), "nothing") << source;
  }
  EXPECT_EQ(with("DataLoader(data)\n", "num_workers", "8", 7), "nothing");
}

TEST(PythonSource, StatementsGoBelowTheImports) {
  const std::string source =
      "\"\"\"A script\nwith import torch.\n\"\"\"\n# so\nimport os\nimport torch\nfrom torch import (\n    nn,\n    "
      "optim,\n)\n\nmodel = 1\n";
  EXPECT_EQ(below_imports(source, "torch.x()\n").value_or(""),
            "\"\"\"A script\nwith import torch.\n\"\"\"\n# so\nimport os\nimport torch\nfrom torch import (\n    nn,\n "
            "   optim,\n)\n\ntorch.x()\n\nmodel = 1\n");
  EXPECT_FALSE(below_imports("from torch import nn\nmodel = 1\n", "torch.x()\n"));
  EXPECT_FALSE(below_imports("", "torch.x()\n"));
  EXPECT_FALSE(below_imports("from torch import (\n", "torch.x()\n"));
}

TEST(PythonSource, AnAssignmentGetsTheNewValue) {
  const std::string source = "if x:\n    torch.backends.cudnn.benchmark = False\n";
  EXPECT_EQ(with_assignment(source, 2, "cudnn.benchmark", "True").value_or(""),
            "if x:\n    torch.backends.cudnn.benchmark = True\n");
  EXPECT_FALSE(with_assignment(source, 1, "cudnn.benchmark", "True"));
  EXPECT_FALSE(with_assignment("cudnn.benchmark = choose()\n", 1, "cudnn.benchmark", "True"));
  EXPECT_FALSE(with_assignment("a = cudnn.benchmark = False\n", 1, "cudnn.benchmark", "True"));
}

TEST(PythonSource, TheDifferenceIsOneThatPatchTakes) {
  std::string before;
  for (int i = 0; i < 40; ++i) before += "line " + std::to_string(i) + "\n";
  auto after = before;
  after.replace(after.find("line 3\n"), 7, "new 3\nnewer 3\n");
  after.replace(after.find("line 30\n"), 8, "");
  after += "end without newline";
  tests::TempFolder folder;
  std::ofstream(folder / "text") << before;
  std::ofstream(folder / "patch") << unified_diff("text", before, after);
  const auto command = "cd '" + std::string(folder / ".") + "' && patch -s -p0 < patch";
  if (std::system("command -v patch > /dev/null 2>&1") != 0) GTEST_SKIP() << "there is no patch program";
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(tests::read_all(folder / "text"), after);
  EXPECT_EQ(unified_diff("text", before, before), "");
}

}  // namespace
}  // namespace fullwatt::tune
