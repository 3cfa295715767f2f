// Keeps the directions in which the folders include each other, and the vendors' names behind their boundary.

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/support/temp_folder.hpp"
#include <gtest/gtest.h>

namespace fullwatt::tests {
namespace {

namespace fs = std::filesystem;
using Folders = std::set<std::string>;

/// The parts of the project, and what each may include.
const std::map<std::string, Folders> kMayInclude{
    {"base", {"base"}},
    {"model", {"base", "model"}},
    {"vendor", {"base", "model", "vendor"}},
    {"record", {"base", "model", "vendor", "record"}},
    {"explain", {"base", "model", "catalog", "doctor", "explain"}},
    {"tune", {"base", "model", "catalog", "record", "explain", "tune"}},
    {"engine", {"base", "vendor", "record", "engine"}},
    {"catalog", {"base", "model", "catalog"}},
    {"doctor", {"base", "model", "vendor", "catalog", "doctor"}},
    {"show", {"base", "model", "catalog", "show"}},
    {"api", {"base", "model", "vendor", "catalog", "doctor", "tune", "engine", "show", "api"}},
    {"cli", {"base", "model", "vendor", "catalog", "doctor", "record", "explain", "tune", "show", "api", "cli"}},
};

struct Source {
  std::string path;  ///< from the project's root
  std::vector<std::string> lines;
};

/// "fullwatt/doctor/probe/raw.cpp" and "fullwatt/doctor/…" belong to doctor, "catalog/…" to catalog.
std::string part_of(const std::string& path) {
  const auto first = path.substr(0, path.find('/'));
  if (first != "fullwatt") return first;
  const auto rest = path.substr(first.size() + 1);
  return rest.substr(0, rest.find('/'));
}

std::vector<std::string> lines_of(const std::string& path) {
  std::istringstream text(read_all(path));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

const std::vector<Source>& sources() {
  static const auto all = [] {
    std::vector<Source> found;
    for (const auto* folder : {"fullwatt", "catalog"}) {
      for (const auto& entry : fs::recursive_directory_iterator(fs::path(FULLWATT_SOURCE) / folder)) {
        const auto extension = entry.path().extension();
        if (extension != ".cpp" && extension != ".hpp" && extension != ".in") continue;
        found.push_back({fs::relative(entry.path(), FULLWATT_SOURCE).string(), lines_of(entry.path().string())});
      }
    }
    return found;
  }();
  return all;
}

/// Path and number of every line that a pattern fits, in files that are not excepted.
template <class Excepted>
std::vector<std::string> places(const std::regex& pattern, Excepted excepted) {
  std::vector<std::string> found;
  for (const auto& source : sources()) {
    for (std::size_t i = 0; i < source.lines.size(); ++i) {
      if (std::regex_search(source.lines[i], pattern) && !excepted(source, source.lines[i])) {
        found.push_back(source.path + ":" + std::to_string(i + 1) + ": " + source.lines[i]);
      }
    }
  }
  return found;
}

const std::vector<std::string> kNone;

TEST(DependenciesTest, SourcesAreFound) {
  EXPECT_GT(sources().size(), 80U);
  for (const auto& source : sources())
    EXPECT_TRUE(kMayInclude.contains(part_of(source.path)) || part_of(source.path) == "api") << source.path;
}

TEST(DependenciesTest, EveryFolderIncludesOnlyWhatStandsBelowIt) {
  const std::regex include(R"re(^\s*#include\s+"((fullwatt|catalog)/[^"]+)")re");
  for (const auto& source : sources()) {
    const auto may = kMayInclude.find(part_of(source.path));
    ASSERT_NE(may, kMayInclude.end()) << source.path;
    for (const auto& line : source.lines) {
      std::smatch match;
      if (!std::regex_search(line, match, include)) continue;
      EXPECT_TRUE(may->second.contains(part_of(match[1].str()))) << source.path << " includes " << match[1];
    }
  }
}

TEST(DependenciesTest, ProjectHeadersAreIncludedByTheirFullPath) {
  const std::regex relative(R"re(^\s*#include\s+"(?!fullwatt/|catalog/))re");
  EXPECT_EQ(places(relative, [](const Source&, const std::string&) { return false; }), kNone);
}

TEST(DependenciesTest, OnlyTheVendorBoundaryNamesVendorFunctions) {
  // A rule may tell the reader which call answered, and recorded calls are told apart by their names; neither is a
  // call.
  const std::regex symbol(R"re("(nvml|cu)[A-Z][A-Za-z0-9_]*")re");
  EXPECT_EQ(places(symbol,
                   [](const Source& source, const std::string& line) {
                     const bool evidence =
                         source.path.starts_with("fullwatt/doctor/rules/") && line.find("saw(") != std::string::npos;
                     const bool recorded_names = source.path == "fullwatt/explain/calls.cpp";
                     return part_of(source.path) == "vendor" || evidence || recorded_names;
                   }),
            kNone);
}

TEST(DependenciesTest, OnlyTheVendorBoundaryLoadsLibrariesAndTheEngineAModelOfTheUsersAndTheRecorder) {
  const std::regex loading(R"re(base/library\.hpp|\bdl(open|sym)\()re");
  EXPECT_EQ(places(loading,
                   [](const Source& source, const std::string&) {
                     return part_of(source.path) == "vendor" || source.path.starts_with("fullwatt/base/library.") ||
                            source.path == "fullwatt/engine/model_library.cpp" ||
                            source.path.starts_with("fullwatt/engine/run_recording.");
                   }),
            kNone);
}

TEST(DependenciesTest, OnlyTheEngineAndItsClassesIncludeTorchAndNothingBesideItThatTorchBringsAnotherVersionOf) {
  const std::regex torch(R"re(#include\s*<(torch|ATen|c10)/)re");
  EXPECT_EQ(places(torch,
                   [](const Source& source, const std::string&) {
                     return part_of(source.path) == "engine" || part_of(source.path) == "api";
                   }),
            kNone);
  const std::regex brought(R"re(#include\s*<(fmt|nlohmann)/)re");
  for (const auto& source : sources()) {
    const auto has = [&](const std::regex& pattern) {
      return std::ranges::any_of(source.lines, [&](const auto& line) { return std::regex_search(line, pattern); });
    };
    EXPECT_FALSE(has(torch) && has(brought)) << source.path;
  }
}

TEST(DependenciesTest, YamlIsReadInFivePlacesOnly) {
  const std::regex yaml(R"re(#include\s*<yaml-cpp/)re");
  EXPECT_EQ(places(yaml,
                   [](const Source& source, const std::string&) {
                     return source.path == "fullwatt/doctor/probe/yaml.cpp" ||
                            source.path == "fullwatt/explain/config_file.cpp" ||
                            source.path == "fullwatt/tune/plan_file.cpp" || source.path == "catalog/compile.cpp" ||
                            source.path == "fullwatt/engine/config.cpp";
                   }),
            kNone);
}

TEST(DependenciesTest, OnlyTheCommandLinePrintsAndExits) {
  const std::regex printing(R"re(std::(cout|cerr|exit|abort|_Exit)\b|\b(printf|puts|fprintf)\(|fmt::print\()re");
  EXPECT_EQ(places(printing,
                   [](const Source& source, const std::string&) {
                     return part_of(source.path) == "cli" || source.path == "catalog/compile.cpp" ||
                            source.path.starts_with("fullwatt/engine/train_");  // the program fullwatt-train
                   }),
            kNone);
}

TEST(DependenciesTest, EveryHeaderGuardsItself) {
  for (const auto& source : sources()) {
    if (!source.path.ends_with(".hpp") && !source.path.ends_with(".hpp.in")) continue;
    EXPECT_TRUE(std::ranges::find(source.lines, "#pragma once") != source.lines.end()) << source.path;
  }
}

}  // namespace
}  // namespace fullwatt::tests
