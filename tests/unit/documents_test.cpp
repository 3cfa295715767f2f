// The documents name files; this keeps the names true.

#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "tests/support/temp_folder.hpp"
#include <gtest/gtest.h>

namespace fullwatt::tests {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = FULLWATT_SOURCE;

std::vector<fs::path> documents() {
  std::vector<fs::path> found;
  for (const auto* name : {"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"}) {
    if (fs::exists(kRoot / name)) found.push_back(kRoot / name);
  }
  if (!fs::exists(kRoot / "docs")) return found;
  for (const auto& entry : fs::directory_iterator(kRoot / "docs")) {
    if (entry.path().extension() == ".md") found.push_back(entry.path());
  }
  return found;
}

/// Whether a text in backticks names a file or folder of the project: no glob, no placeholder, no command.
bool names_a_path(const std::string& text) {
  static const std::regex kPath(R"re((fullwatt|catalog|tests|docs|cmake|bench|python)/[A-Za-z0-9_./+-]*)re");
  return std::regex_match(text, kPath);
}

std::vector<std::string> paths_in(const std::string& markdown) {
  static const std::regex kCode("`([^`\n]+)`");
  std::vector<std::string> paths;
  for (auto at = std::sregex_iterator(markdown.begin(), markdown.end(), kCode); at != std::sregex_iterator(); ++at) {
    if (const auto text = (*at)[1].str(); names_a_path(text)) paths.push_back(text);
  }
  return paths;
}

TEST(PathsInTest, OnlyPlainPathsOfTheProjectAreTaken) {
  const auto paths = paths_in(
      "`fullwatt/base/text.hpp` and `tests/patients/`, not `tests/*_test.cpp`, `tests/patients/<id>/machine.yaml`, "
      "`docs/…`, "
      "`fullwatt doctor`, `/usr/lib/x` or fullwatt/base");
  EXPECT_EQ(paths, (std::vector<std::string>{"fullwatt/base/text.hpp", "tests/patients/"}));
}

TEST(DocumentsTest, EveryPathTheyNameExists) {
  for (const auto& document : documents()) {
    for (const auto& path : paths_in(read_all(document.string()))) {
      EXPECT_TRUE(fs::exists(kRoot / path)) << document.filename() << " names " << path;
    }
  }
}

TEST(DocumentsTest, EveryLinkBetweenThemLeadsSomewhere) {
  static const std::regex kLink(R"re(\]\(([^)#:\s]+)(#[^)]*)?\))re");
  for (const auto& document : documents()) {
    const auto text = read_all(document.string());
    for (auto at = std::sregex_iterator(text.begin(), text.end(), kLink); at != std::sregex_iterator(); ++at) {
      const auto target = (*at)[1].str();
      EXPECT_TRUE(fs::exists(document.parent_path() / target)) << document.filename() << " links to " << target;
    }
  }
}

TEST(DocumentsTest, TheReadmeIsThere) {
  if (documents().empty()) GTEST_SKIP() << "no document has been written yet";
  EXPECT_TRUE(fs::exists(kRoot / "README.md"));
}

}  // namespace
}  // namespace fullwatt::tests
