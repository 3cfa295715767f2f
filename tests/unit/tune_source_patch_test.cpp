// The fixes of a plan in the user's own source.

#include <fstream>

#include "tests/support/temp_folder.hpp"
#include <gtest/gtest.h>

#include "fullwatt/tune/source_patch.hpp"

namespace fullwatt::tune {
namespace {

constexpr auto* kScript =
    "import torch\n"
    "from torch.utils.data import DataLoader\n"
    "\n"
    "torch.backends.cudnn.benchmark = False\n"
    "loader = DataLoader(\n"
    "    data,\n"
    "    num_workers=0,\n"
    ")\n"
    "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)\n";

explain::ProcessFacts facts() {
  explain::ProcessFacts facts;
  explain::LoaderFact loader;
  loader.site = {"train.py", 5, "<module>"};
  loader.batches = 10;
  facts.loaders.push_back(loader);
  explain::OptimizerFact optimizer;
  optimizer.class_name = "AdamW";
  optimizer.site = {"train.py", 9, "<module>"};
  facts.optimizers.push_back(optimizer);
  return facts;
}

std::optional<std::string> read(const std::string& file) {
  return file == "train.py" ? std::optional<std::string>(kScript) : std::nullopt;
}

TEST(SourcePatch, EveryFixGoesToItsPlace) {
  model::Plan plan;
  plan.fixes = {{"tf32", {}, {}},
                {"bf16", {}, {}},
                {"cudnn-benchmark", {}, {}},
                {"fused-optimizer", {}, {}},
                {"loader-workers", {{"count", "8"}}, {}},
                {"loader-pinned", {}, {}}};
  const auto patched = patch_source(plan, facts(), "train.py", read);
  ASSERT_EQ(patched.files.size(), 1U);
  EXPECT_EQ(patched.files[0].before, kScript);
  EXPECT_EQ(patched.files[0].after,
            "import torch\n"
            "from torch.utils.data import DataLoader\n"
            "\n"
            "torch.backends.cuda.matmul.allow_tf32 = True\n"
            "torch.backends.cudnn.allow_tf32 = True\n"
            "\n"
            "torch.backends.cudnn.benchmark = True\n"
            "loader = DataLoader(\n"
            "    data,\n"
            "    num_workers=8,\n"
            "    pin_memory=True,\n"
            ")\n"
            "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)\n");
  const std::vector<std::string> written{"fused-optimizer", "loader-workers", "loader-pinned", "tf32",
                                         "cudnn-benchmark"};
  EXPECT_EQ(patched.written, written) << "bf16 has no certain place";
}

TEST(SourcePatch, WithoutCertainPlacesNothingIsChanged) {
  model::Plan plan;
  plan.fixes = {{"tf32", {}, {}}, {"loader-pinned", {}, {}}};
  EXPECT_TRUE(patch_source(plan, {}, "", read).files.empty());
  EXPECT_TRUE(patch_source(plan, facts(), "", [](const auto&) { return std::nullopt; }).written.empty());
}

TEST(SourcePatch, WritingKeepsTheOriginalAndRefusesAFileThatHasChanged) {
  tests::TempFolder folder;
  const std::string file = folder / "train.py";
  std::ofstream(file) << "before\n";
  const auto backup = write_patch({file, "before\n", "after\n"});
  ASSERT_TRUE(backup) << backup.error().message;
  EXPECT_EQ(tests::read_all(file), "after\n");
  EXPECT_EQ(tests::read_all(*backup), "before\n");
  const auto again = write_patch({file, "before\n", "other\n"});
  ASSERT_FALSE(again);
  EXPECT_NE(again.error().message.find("has changed"), std::string::npos);
  EXPECT_EQ(tests::read_all(file), "after\n");
  ASSERT_TRUE(write_patch({file, "after\n", "third\n"}));
  EXPECT_EQ(tests::read_all(*backup), "before\n") << "an older original stays";
}

}  // namespace
}  // namespace fullwatt::tune
