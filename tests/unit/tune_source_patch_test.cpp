// The fixes of a plan in the user's own source.

#include <fstream>
#include <map>

#include "tests/support/temp_folder.hpp"
#include <gtest/gtest.h>

#include "fullwatt/tune/config_source.hpp"
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

const std::vector<model::SettingRow> kNoSettings;

TEST(SourcePatch, EveryFixGoesToItsPlace) {
  model::Plan plan;
  plan.fixes = {{"tf32", {}, {}},
                {"bf16", {}, {}},
                {"cudnn-benchmark", {}, {}},
                {"fused-optimizer", {}, {}},
                {"loader-workers", {{"count", "8"}, {"persistent", "true"}}, {}},
                {"loader-pinned", {}, {}}};
  const auto known = facts();
  const auto patched = patch_source(plan, {known, kNoSettings, "train.py"}, read);
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
            "    persistent_workers=True,\n"
            "    pin_memory=True,\n"
            ")\n"
            "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)\n");
  const std::vector<std::string> written{"fused-optimizer", "loader-workers", "loader-pinned", "tf32",
                                         "cudnn-benchmark"};
  EXPECT_EQ(patched.written, written) << "bf16 has no certain place";
}

TEST(SourcePatch, EveryCallThatAsksForZerosIsChanged) {
  model::Plan plan;
  plan.fixes = {{"gradients-to-none", {}, {}}};
  const auto text = [](const std::string&) {
    return std::optional<std::string>(
        "first.zero_grad(set_to_none=False)\nsecond.zero_grad()\nthird.zero_grad(set_to_none=False)\n");
  };
  const auto patched = patch_source(plan, {explain::ProcessFacts(), kNoSettings, "train.py"}, text);
  ASSERT_EQ(patched.files.size(), 1U);
  EXPECT_EQ(patched.files[0].after,
            "first.zero_grad(set_to_none=True)\nsecond.zero_grad()\nthird.zero_grad(set_to_none=True)\n");
  EXPECT_EQ(patched.written, std::vector<std::string>{"gradients-to-none"});
}

TEST(SourcePatch, AnomalyDetectionIsSwitchedOffWhereItIsSwitchedOn) {
  model::Plan plan;
  plan.fixes = {{"anomaly-off", {}, {}}};
  const auto text = [](const std::string&) {
    return std::optional<std::string>(
        "torch.autograd.set_detect_anomaly(True)\n"
        "torch.autograd.set_detect_anomaly(mode=True, check_nan=False)\n"
        "torch.autograd.set_detect_anomaly(debug)  # set_detect_anomaly(True)\n");
  };
  const auto patched = patch_source(plan, {explain::ProcessFacts(), kNoSettings, "train.py"}, text);
  ASSERT_EQ(patched.files.size(), 1U);
  EXPECT_EQ(patched.files[0].after,
            "torch.autograd.set_detect_anomaly(False)\n"
            "torch.autograd.set_detect_anomaly(mode=False, check_nan=False)\n"
            "torch.autograd.set_detect_anomaly(debug)  # set_detect_anomaly(True)\n");
  EXPECT_EQ(patched.written, std::vector<std::string>{"anomaly-off"});
}

/// A program whose loader is made from a configuration file.
struct Configured {
  explain::ProcessFacts known = facts();
  std::vector<model::SettingRow> settings;
  std::string script = "loader = DataLoader(data, num_workers=config.workers, pin_memory=config.pin)\n";
  std::string config = "train:\n  workers: 2  # of 64\n  pin: false\n";

  Configured() {
    known.loaders[0].site.line = 1;
    known.config_files.push_back({"/etc/train/config.yaml", {}});
    settings.push_back({"loader.num_workers", "2", "config.yaml:2", "2", "", false, ""});
    settings.push_back({"loader.pin_memory", "false", "config.yaml:3", "false", "", false, ""});
  }
  std::map<std::string, std::string> patched() const {
    model::Plan plan;
    plan.fixes = {{"loader-workers", {{"count", "8"}}, {}}, {"loader-pinned", {}, {}}};
    std::map<std::string, std::string> after;
    const auto text = [&](const std::string& file) { return std::optional(file == "train.py" ? script : config); };
    for (const auto& file : patch_source(plan, {known, settings, "train.py"}, text).files)
      after[file.file] = file.after;
    return after;
  }
};

TEST(SourcePatch, WhatComesFromAConfigurationFileIsChangedThere) {
  const std::map<std::string, std::string> expected{
      {"/etc/train/config.yaml", "train:\n  workers: 8  # of 64\n  pin: true\n"}};
  EXPECT_EQ(Configured().patched(), expected);
}

TEST(SourcePatch, AConfigurationThatIsNotInForceIsLeftAlone) {
  Configured overridden;
  overridden.settings[0].differs = true;
  EXPECT_EQ(overridden.patched().at("train.py"), "loader = DataLoader(data, num_workers=8, pin_memory=config.pin)\n");
  Configured by_chance;
  by_chance.script = "loader = DataLoader(data, num_workers=2, pin_memory=False)\n";
  EXPECT_EQ(by_chance.patched().at("train.py"), "loader = DataLoader(data, num_workers=8, pin_memory=True)\n");
  Configured two;
  two.known.config_files.push_back({"/other/config.yaml", {}});
  EXPECT_TRUE(two.patched().contains("train.py")) << "there is no telling which of them it was";
}

TEST(ConfigSource, OneValueIsReplacedAndTheRestStays) {
  EXPECT_EQ(with_config_value("a: 1\n\"workers\": 2,\n", 2, "2", "8"), "a: 1\n\"workers\": 8,\n");
  EXPECT_EQ(with_config_value("{a: 22, workers: 2, b: 2x}", 1, "2", "8"), "{a: 22, workers: 8, b: 2x}");
  EXPECT_EQ(with_config_value("workers = 2 ; of 4\n", 1, "2", "8"), "workers = 8 ; of 4\n");
  EXPECT_EQ(with_config_value("a: 2, b: 2\n", 1, "2", "8"), std::nullopt) << "which of them?";
  EXPECT_EQ(with_config_value("workers: 12\n", 1, "2", "8"), std::nullopt);
  EXPECT_EQ(with_config_value("workers: 2\n", 3, "2", "8"), std::nullopt);
}

TEST(SourcePatch, WithoutCertainPlacesNothingIsChanged) {
  model::Plan plan;
  plan.fixes = {{"tf32", {}, {}}, {"loader-pinned", {}, {}}};
  const explain::ProcessFacts nothing;
  const auto known = facts();
  EXPECT_TRUE(patch_source(plan, {nothing, kNoSettings, ""}, read).files.empty());
  EXPECT_TRUE(patch_source(plan, {known, kNoSettings, ""}, [](const auto&) { return std::nullopt; }).written.empty());
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
