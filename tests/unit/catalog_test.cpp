#include "catalog/catalog.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "catalog/tables.hpp"
#include <gtest/gtest.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/base/version.hpp"
#include "fullwatt/doctor/rules/rule.hpp"

namespace fullwatt::catalog {
namespace {

using base::Version;

bool is_kebab_case(std::string_view id) {
  const auto allowed = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; };
  return !id.empty() && std::ranges::all_of(id, allowed) && id.front() != '-' && id.back() != '-' &&
         !base::contains(id, "--");
}

bool has_chinese(std::string_view text) {
  // Every character of the CJK block starts with one of these bytes in UTF-8.
  return std::ranges::any_of(
      text, [](char c) { return static_cast<unsigned char>(c) >= 0xE4 && static_cast<unsigned char>(c) <= 0xE9; });
}

TEST(EntriesTest, IdsAreUniqueAndInKebabCase) {
  std::set<std::string_view> ids;
  for (const auto& entry : entries()) {
    EXPECT_TRUE(is_kebab_case(entry.id)) << entry.id;
    EXPECT_TRUE(ids.insert(entry.id).second) << entry.id;
    EXPECT_EQ(find(entry.id), &entry);
  }
  EXPECT_GT(ids.size(), 100U);
}

TEST(EntriesTest, WordsAreThereInBothLanguages) {
  for (const auto& entry : entries()) {
    for (const auto* words : {&entry.title, &entry.cause}) {
      EXPECT_FALSE(words->en.empty()) << entry.id;
      EXPECT_TRUE(has_chinese(words->zh)) << entry.id << ": " << words->zh;
      EXPECT_FALSE(has_chinese(words->en)) << entry.id << ": " << words->en;
    }
    for (const auto& step : entry.remedy) {
      EXPECT_FALSE(step.text.en.empty()) << entry.id;
      EXPECT_TRUE(has_chinese(step.text.zh)) << entry.id << ": " << step.text.zh;
    }
  }
}

TEST(EntriesTest, EveryEntrySaysWhatToDoAndWhereItIsKnownFrom) {
  for (const auto& entry : entries()) {
    EXPECT_FALSE(entry.remedy.empty()) << entry.id;
    EXPECT_FALSE(entry.sources.empty()) << entry.id;
    EXPECT_NE(entry.needs, 0U) << entry.id;
  }
}

TEST(EntriesTest, BothLanguagesUseTheSamePlaceholders) {
  const auto names = [](std::string_view text) {
    std::set<std::string_view> found;
    for (auto open = text.find('{'); open != std::string_view::npos; open = text.find('{', open + 1)) {
      found.insert(text.substr(open + 1, text.find('}', open) - open - 1));
    }
    return found;
  };
  for (const auto& entry : entries()) {
    EXPECT_EQ(names(entry.title.en), names(entry.title.zh)) << entry.id;
    EXPECT_EQ(names(entry.cause.en), names(entry.cause.zh)) << entry.id;
    for (const auto& step : entry.remedy) EXPECT_EQ(names(step.text.en), names(step.text.zh)) << entry.id;
  }
}

TEST(EntriesTest, ReferencesLeadToOtherEntries) {
  for (const auto& entry : entries()) {
    for (const auto list : {entry.see, entry.explained_by}) {
      for (const auto id : list) {
        EXPECT_NE(find(id), nullptr) << entry.id << " names " << id;
        EXPECT_NE(id, entry.id);
      }
    }
  }
}

TEST(EntriesTest, NothingExplainsItselfThroughOthers) {
  std::map<std::string_view, int> state;  // 1: on the way, 2: done
  const std::function<bool(std::string_view)> circles = [&](std::string_view id) {
    if (state[id] == 1) return true;
    if (state[id] == 2) return false;
    state[id] = 1;
    const bool found = std::ranges::any_of(find(id)->explained_by, circles);
    state[id] = 2;
    return found;
  };
  for (const auto& entry : entries()) EXPECT_FALSE(circles(entry.id)) << entry.id;
}

/// The longest piece of a pattern that stands in the line as it is.
std::size_t longest_literal(std::string_view pattern) {
  std::size_t longest = 0;
  std::size_t current = 0;
  bool inside = false;
  for (const char c : pattern) {
    inside = c == '{' || (inside && c != '}');
    current = inside || c == '}' || c == '*' ? 0 : current + 1;
    longest = std::max(longest, current);
  }
  return longest;
}

TEST(EntriesTest, LogPatternsAreSpecificEnough) {
  for (const auto& entry : entries()) {
    for (const auto list : {entry.kernel_log, entry.training_log}) {
      for (const auto pattern : list) EXPECT_GE(longest_literal(pattern), 8U) << entry.id << ": " << pattern;
    }
  }
}

TEST(EntriesTest, EveryEntryCanBeFoundByARuleOrALog) {
  const auto rules = doctor::all_rules();
  for (const auto& entry : entries()) {
    if ((entry.needs & ~(kLoad | kRun)) == 0) continue;
    const bool has_rule = std::ranges::find(rules, entry.id, &doctor::Rule::id) != rules.end();
    EXPECT_TRUE(has_rule || !entry.kernel_log.empty() || !entry.training_log.empty()) << entry.id;
  }
}

TEST(EntriesTest, EveryRuleHasItsEntry) {
  for (const auto& rule : doctor::all_rules()) EXPECT_NE(find(rule.id), nullptr) << rule.id;
}

TEST(EntriesTest, EntriesStandByLayer) {
  EXPECT_TRUE(std::ranges::is_sorted(entries(), {}, &Entry::layer));
}

TEST(NearestTest, ATypingErrorLeadsToTheRightId) {
  EXPECT_EQ(nearest("torch-cpu-weel"), "torch-cpu-wheel");
  EXPECT_EQ(nearest("cuda-fials"), "cuda-fails");
  EXPECT_EQ(nearest("zzzzzzzzzzzzzzzz"), "");
  EXPECT_EQ(nearest(std::string(10'000, 'a')), "");
}

TEST(LabelTest, EveryLabelSpeaksBothLanguagesAndUnknownOnesShowTheirKey) {
  EXPECT_EQ(label("root_cause", Language::en), "Root cause");
  EXPECT_TRUE(has_chinese(label("root_cause", Language::zh)));
  EXPECT_EQ(label("no_such_label", Language::en), "no_such_label");
  for (const auto& known : tables().labels) {
    EXPECT_FALSE(known.words.en.empty()) << known.key;
    EXPECT_FALSE(known.words.zh.empty()) << known.key;
  }
}

TEST(LabelTest, EveryEnumerationHasItsWords) {
  for (const auto layer : model::kLayers)
    EXPECT_TRUE(std::ranges::find(tables().labels, to_string(layer), &Label::key) != tables().labels.end());
  for (const auto* key : {"info", "note", "warning", "error", "possible", "likely", "certain"}) {
    EXPECT_TRUE(std::ranges::find(tables().labels, key, &Label::key) != tables().labels.end()) << key;
  }
}

TEST(VersionTablesTest, TheyAreSortedUpwards) {
  EXPECT_TRUE(std::ranges::is_sorted(cuda_floors(), {}, &CudaFloor::cuda_major));
  EXPECT_TRUE(std::ranges::is_sorted(cuda_floors(), {}, [](const auto& floor) { return Version(floor.driver); }));
  EXPECT_TRUE(std::ranges::is_sorted(branch_cudas(), {}, &BranchCuda::branch));
  EXPECT_TRUE(std::ranges::is_sorted(branch_cudas(), {}, [](const auto& branch) { return Version(branch.cuda); }));
  EXPECT_TRUE(std::ranges::is_sorted(torch_wheels(), {},
                                     [](const auto& wheel) { return std::pair(Version(wheel.torch), wheel.tag); }));
  EXPECT_TRUE(std::ranges::is_sorted(architectures(), {}, &Architecture::first_device));
}

TEST(VersionTablesTest, ArchitecturesOfAWheelAreSortedUpwards) {
  for (const auto& wheel : torch_wheels()) {
    const auto archs = base::split(wheel.archs, ' ');
    EXPECT_TRUE(std::ranges::is_sorted(archs, {}, [](auto arch) { return Version(arch); }))
        << wheel.torch << " " << wheel.tag;
    for (const auto arch : archs) EXPECT_TRUE(Version(arch).known()) << wheel.archs;
  }
}

TEST(VersionTablesTest, RangesOfPciDevicesDoNotOverlap) {
  for (std::size_t i = 0; i < architectures().size(); ++i) {
    EXPECT_LE(architectures()[i].first_device, architectures()[i].last_device);
    if (i > 0) {
      EXPECT_GT(architectures()[i].first_device, architectures()[i - 1].last_device);
    }
  }
}

TEST(ArchitectureTest, WellKnownCardsBelongToTheirGeneration) {
  const std::map<int, std::string_view> cards{{0x28a1, "Ada"},    {0x2b85, "Blackwell"}, {0x2335, "Hopper"},
                                              {0x20b0, "Ampere"}, {0x2204, "Ampere"},    {0x1eb8, "Turing"},
                                              {0x1db1, "Volta"},  {0x1b06, "Pascal"}};
  for (const auto& [device, name] : cards) {
    ASSERT_NE(architecture_of(device), nullptr) << std::hex << device;
    EXPECT_EQ(architecture_of(device)->name, name) << std::hex << device;
  }
  EXPECT_EQ(architecture_of(0xffff), nullptr);
  EXPECT_EQ(architecture_of(-1), nullptr);
}

struct WheelCase {
  const char* driver;
  const char* capability;
  const char* expected;
};

TEST(WheelTest, TheIndexFitsDriverAndGpu) {
  const std::vector<WheelCase> cases{
      {"580.95.05", "12.0", "cu130"},
      {"580.95.05", "9.0", "cu130"},
      {"610.10", "7.5", "cu130"},
      {"580.95.05", "7.0", "cu126"},
      {"580.95.05", "6.1", "cu126"},
      {"580.95.05", "5.0", "cu126"},
      {"535.161.07", "6.1", "cu126"},
      {"535.161.07", "8.9", "cu126"},
      {"525.60.13", "8.0", "cu126"},
      {"579.99", "9.0", "cu126"},
      {"570.124.06", "12.0", "cu128"},
      {"575.10", "10.0", "cu128"},
      {"470.256.02", "7.0", "cu118"},
      {"515.43", "8.6", "cu118"},
      {"450.80.02", "8.0", "cu118"},
      {"", "8.9", "cu130"},
      {"580.95.05", "", "cu130"},
      {"550.54", "", "cu126"},
      {"", "", "cu130"},
  };
  for (const auto& given : cases) {
    EXPECT_EQ(wheel_for(given.driver, given.capability), given.expected)
        << given.driver << " with " << given.capability;
  }
}

TEST(WheelTest, TheIndexExistsInTheTables) {
  for (const auto* driver : {"450.80.02", "525.60.13", "570.10", "580.95.05", "610.10"}) {
    for (const auto* capability : {"5.0", "6.1", "7.0", "7.5", "8.6", "9.0", "10.0", "12.0"}) {
      const auto tag = wheel_for(driver, capability);
      EXPECT_TRUE(std::ranges::find(torch_wheels(), tag, &TorchWheel::tag) != torch_wheels().end()) << tag;
    }
  }
}

TEST(CodeTest, CodesHaveTheNamesOfTheHeaders) {
  EXPECT_EQ(nvml_code_name(18), "LIB_RM_VERSION_MISMATCH");
  EXPECT_EQ(nvml_code_name(0), "SUCCESS");
  EXPECT_EQ(cuda_code_name(803), "SYSTEM_DRIVER_MISMATCH");
  EXPECT_EQ(cuda_code_name(4711), "unknown code");
}

}  // namespace
}  // namespace fullwatt::catalog
