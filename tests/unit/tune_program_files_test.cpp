#include <filesystem>

#include "tests/support/temp_folder.hpp"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "fullwatt/tune/program_files.hpp"

namespace fullwatt::tune {
namespace {

TEST(ProgramFiles, AreThoseOfTheCommandAndThoseThatATrialNames) {
  tests::TempFolder folder;
  const auto script = folder.write("train.py", "import net\n");
  const auto module = folder.write("net.py", "layers = 2\n");
  const auto config = folder.write("config.yaml", "lr: 1\n");
  folder.write("run/facts-1.jsonl", R"({"kind":"program","files":[")" + module + R"(", "/nowhere", 7]})" +
                                        "\n{broken\n[]\n" + R"({"kind":"config_file","path":")" + config + "\"}\n");
  const auto files = program_files({"python", script, "--lr"}, folder / "run");
  ASSERT_EQ(files.size(), 3U) << files;
  EXPECT_EQ(changed_file(files), "");
  for (const auto& path : {script, module, config}) {
    const auto before = tests::read_all(path);
    std::filesystem::remove(path);
    EXPECT_EQ(changed_file(files), path);
    folder.write(std::filesystem::path(path).filename().string(), before + "# more\n");
    EXPECT_EQ(changed_file(files), path);
    folder.write(std::filesystem::path(path).filename().string(), before);
    std::filesystem::last_write_time(
        path, std::filesystem::file_time_type(std::filesystem::file_time_type::duration(files[path][1].get<long>())));
    EXPECT_EQ(changed_file(files), "");
  }
  EXPECT_EQ(changed_file({}), "");
}

}  // namespace
}  // namespace fullwatt::tune
