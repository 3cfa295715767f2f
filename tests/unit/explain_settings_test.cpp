#include <algorithm>
#include <optional>

#include "tests/support/run_builder.hpp"
#include <gtest/gtest.h>

#include "fullwatt/explain/config_file.hpp"
#include "fullwatt/explain/explain.hpp"
#include "fullwatt/explain/settings.hpp"

namespace fullwatt::explain {
namespace {

using model::SettingRow;
using tests::RunBuilder;
using tests::Script;

const ConfigValue* value_of(const std::vector<ConfigValue>& values, std::string_view path) {
  const auto at = std::ranges::find(values, path, &ConfigValue::path);
  return at == values.end() ? nullptr : &*at;
}

std::optional<SettingRow> row(const std::vector<SettingRow>& rows, std::string_view name) {
  const auto at = std::ranges::find(rows, name, &SettingRow::name);
  return at == rows.end() ? std::nullopt : std::optional(*at);
}

/// A training on the CPU with one loader of `loader`'s fields.
RunBuilder training(const std::string& loader = R"("batch_size":32,"num_workers":2)") {
  RunBuilder builder;
  builder.without_gpu_records();
  builder.fact("loader", R"({"id":1,"site":{"file":"/home/ada/data.py","line":281,"function":"make"},)" + loader + "}");
  builder.fact("model",
               R"({"id":1,"class":"Net","parameters":100,"dtypes":{"torch.float32":100},"devices":{"cpu":100}})");
  builder.train(Script().data(12, 1).python(14, 3));
  return builder;
}

std::vector<SettingRow> compare(RunBuilder& builder, const std::string& yaml,
                                const std::string& path = "/home/ada/config.yaml") {
  builder.run().config_files[path] = yaml;
  return explain(builder.build()).settings;
}

TEST(ConfigFileTest, YamlValuesCarryPathTypeAndLine) {
  const auto values =
      read_config("config.yaml", "train:\n  amp: true\n  lr: 0.1\n  mode: 'true'\ndata:\n  - workers: 4\nnone: ~\n");
  ASSERT_NE(value_of(values, "train.amp"), nullptr);
  EXPECT_EQ(value_of(values, "train.amp")->line, 2);
  EXPECT_EQ(value_of(values, "train.amp")->type, "bool");
  EXPECT_EQ(value_of(values, "train.amp")->key, "amp");
  EXPECT_EQ(value_of(values, "train.lr")->type, "float");
  EXPECT_EQ(value_of(values, "train.mode")->type, "str");
  EXPECT_EQ(value_of(values, "data.workers")->type, "int");
  EXPECT_EQ(value_of(values, "none")->type, "NoneType");
}

TEST(ConfigFileTest, TypesAreThoseOfPyYaml) {
  const auto values = read_config("c.yml", "a: yes\nb: 1e-4\nc: 1.0e-4\nd: None\ne: \"8\"\nf: -3\n");
  EXPECT_EQ(value_of(values, "a")->type, "bool");
  EXPECT_EQ(value_of(values, "b")->type, "str");
  EXPECT_EQ(value_of(values, "c")->type, "float");
  EXPECT_EQ(value_of(values, "d")->type, "str");
  EXPECT_EQ(value_of(values, "e")->type, "str");
  EXPECT_EQ(value_of(values, "f")->type, "int");
}

TEST(ConfigFileTest, JsonIsReadWithItsLines) {
  const auto values =
      read_config("config.json", "{\n  \"train\": {\n    \"batch_size\": 64,\n    \"amp\": \"bf16\"\n  }\n}\n");
  ASSERT_NE(value_of(values, "train.batch_size"), nullptr);
  EXPECT_EQ(value_of(values, "train.batch_size")->line, 3);
  EXPECT_EQ(value_of(values, "train.batch_size")->type, "int");
  EXPECT_EQ(value_of(values, "train.amp")->type, "str");
}

TEST(ConfigFileTest, TomlAndIniAreReadLineByLine) {
  const auto toml = read_config("pyproject.toml", "[train] # here\nworkers = 8\namp = true\nname = \"a # b\"\n[[x]]\n");
  EXPECT_EQ(value_of(toml, "train.workers")->line, 2);
  EXPECT_EQ(value_of(toml, "train.workers")->type, "int");
  EXPECT_EQ(value_of(toml, "train.amp")->type, "bool");
  EXPECT_EQ(value_of(toml, "train.name")->value, "a # b");
  const auto ini = read_config("setup.cfg", "; note\n[train]\nworkers: 8\namp = true\n");
  EXPECT_EQ(value_of(ini, "train.workers")->value, "8");
  EXPECT_EQ(value_of(ini, "train.amp")->type, "str");
}

TEST(ConfigFileTest, WhatIsBrokenGivesNothing) {
  EXPECT_TRUE(read_config("config.yaml", "a: [1, 2\nb: }").empty());
  EXPECT_TRUE(read_config("config.yaml", "").empty());
  EXPECT_TRUE(read_config("config.json", "{\"a\": ").empty());
  EXPECT_TRUE(read_config("x.toml", "= = =\n[\n").empty());
}

TEST(ConfigFileTest, AliasesThatMultiplyEnd) {
  std::string bomb = "a0: &a0 {x: 1}\n";
  for (int i = 1; i < 30; ++i) {
    const auto before = std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " {l: *a" + before + ", r: *a" + before + "}\n";
  }
  EXPECT_LE(read_config("config.yaml", bomb).size(), 5000U);
}

TEST(ValuesTest, SameMeaningIsNoDifference) {
  for (const auto& [left, right] : std::vector<std::pair<const char*, const char*>>{{"true", "True"},
                                                                                    {"yes", "true"},
                                                                                    {"1", "true"},
                                                                                    {"on", "1"},
                                                                                    {"none", "false"},
                                                                                    {"off", "False"},
                                                                                    {"bf16", "bfloat16"},
                                                                                    {"true", "bfloat16"},
                                                                                    {"16-mixed", "float16"},
                                                                                    {"32", "off"},
                                                                                    {"fp32", "off"},
                                                                                    {"8", "8.0"},
                                                                                    {"1e-3", "0.001"},
                                                                                    {"cuda", "cuda:0"},
                                                                                    {"max-autotune", "Max-Autotune"}}) {
    EXPECT_FALSE(values_differ(left, right)) << left << " and " << right;
    EXPECT_FALSE(values_differ(right, left)) << right << " and " << left;
  }
}

TEST(ValuesTest, AnotherMeaningIsADifference) {
  for (const auto& [left, right] : std::vector<std::pair<const char*, const char*>>{{"true", "false"},
                                                                                    {"24", "2"},
                                                                                    {"bf16", "off"},
                                                                                    {"bf16", "float16"},
                                                                                    {"cuda", "cpu"},
                                                                                    {"default", "max-autotune"}}) {
    EXPECT_TRUE(values_differ(left, right)) << left << " and " << right;
  }
}

TEST(SettingsTest, WorkersThatTheLoaderIgnoresAreMarkedWithBothPlaces) {
  auto builder = training();
  const auto rows = compare(builder, "data:\n  num_workers: 24\n");
  const auto found = row(rows, "loader.num_workers");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->declared, "24");
  EXPECT_EQ(found->declared_at, "config.yaml:2");
  EXPECT_EQ(found->in_force, "2");
  EXPECT_EQ(found->in_force_at, "data.py:281");
  EXPECT_TRUE(found->differs);
}

TEST(SettingsTest, ManySpellingsAreKnownAtAnyDepth) {
  for (const auto* yaml : {"workers: 24", "loader: {n_workers: 24}", "a: {b: {c: {data_loader_workers: 24}}}",
                           "num-workers: 24", "Num_Workers: 24", "dataloader_num_workers: 24"}) {
    auto builder = training();
    const auto found = row(compare(builder, yaml), "loader.num_workers");
    EXPECT_TRUE(found && found->differs) << yaml;
  }
}

TEST(SettingsTest, UnknownKeysAndThoseOfEvaluationAreNotListed) {
  auto builder = training();
  EXPECT_TRUE(compare(builder, "favourite_colour: red\nval:\n  num_workers: 9\n  batch_size: 1\n").empty());
}

TEST(SettingsTest, ABatchSizeIsKeptWhetherByTheLoaderOrByTheFiles) {
  auto same = training();
  EXPECT_FALSE(row(compare(same, "batch_size: 32"), "batch_size")->differs);
  auto files = training(R"("batch_size":1,"num_workers":2)");
  EXPECT_FALSE(row(compare(files, "bs: 32"), "batch_size")->differs);
  EXPECT_EQ(row(compare(files, "bs: 32"), "batch_size")->remark, "32 samples of a step");
  EXPECT_TRUE(row(compare(files, "bs: 64"), "batch_size")->differs);
}

TEST(SettingsTest, MixedPrecisionIsHeldAgainstAutocast) {
  auto off = training();
  const auto rows = compare(off, "amp: true");
  EXPECT_TRUE(row(rows, "amp")->differs);
  EXPECT_EQ(row(rows, "amp")->in_force, "off");
  auto on = training();
  on.fact(
      "autocast",
      R"({"device":"cuda","dtype":"torch.bfloat16","enabled":true,"site":{"file":"/home/ada/train.py","line":20,"function":"f"}})");
  EXPECT_FALSE(row(compare(on, "amp: true"), "amp")->differs);
  EXPECT_EQ(row(compare(on, "amp: bf16"), "amp")->in_force_at, "train.py:20");
  EXPECT_TRUE(row(compare(on, "precision: fp16"), "amp")->differs);
}

TEST(SettingsTest, OneOfTwoPrecisionSwitchesBeingOffSaysNothing) {
  auto builder = training();
  builder.fact("autocast", R"({"device":"cuda","dtype":"bfloat16","enabled":true,"site":null})");
  for (const auto& found : compare(builder, "fp16: false\nbf16: true\n"))
    EXPECT_FALSE(found.differs) << found.declared_at;
}

TEST(SettingsTest, CompileThatIsConfiguredAndNeverCalledDiffers) {
  auto builder = training();
  const auto rows = compare(builder, "compile_model: true\ncompile_mode: max-autotune\n");
  EXPECT_TRUE(row(rows, "compile")->differs);
  EXPECT_EQ(row(rows, "compile")->remark, "torch.compile was not called");
  EXPECT_FALSE(row(rows, "compile.mode")->differs);
  EXPECT_EQ(row(rows, "compile.mode")->remark, "nothing is compiled");
}

TEST(SettingsTest, TheLineThatOverridesASwitchIsFoundInTheSource) {
  auto builder = training();
  builder.fact("settings", R"({"when":"end","values":{"cudnn.benchmark":false}})");
  builder.run().source_facts = R"({"schema":1,"files":[{"path":"/home/ada/train.py","error":null,
    "assignments":[{"target":"torch.backends.cudnn.benchmark","value":"False","line":80,"function":"seed"}]}]})";
  const auto rows = compare(builder, "cudnn_benchmark: true");
  EXPECT_TRUE(row(rows, "cudnn.benchmark")->differs);
  EXPECT_EQ(row(rows, "cudnn.benchmark")->in_force_at, "train.py:80");
}

TEST(SettingsTest, AnArgumentOverridesTheFileAndSaysSo) {
  auto builder = training();
  builder.fact("argument", R"({"values":{"workers":2},"defaults":{"workers":4},"given":["workers"]})");
  const auto rows = compare(builder, "workers: 24");
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_TRUE(rows[0].differs);
  EXPECT_EQ(rows[0].declared_at, "config.yaml:1");
  EXPECT_EQ(rows[0].in_force_at, "--workers");
  EXPECT_FALSE(rows[1].differs);
}

TEST(SettingsTest, ADefaultThatTheFileOverridesIsNoDifference) {
  auto builder = training();
  builder.fact("argument", R"({"values":{"workers":4},"defaults":{"workers":4},"given":[]})");
  for (const auto& found : compare(builder, "workers: 2")) EXPECT_FALSE(found.differs) << found.declared_at;
}

TEST(SettingsTest, WhatCannotBeToldSaysSo) {
  auto builder = training();
  const auto found = row(compare(builder, "gradient_checkpointing: true"), "gradient_checkpointing");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->in_force, "");
  EXPECT_FALSE(found->differs);
  EXPECT_FALSE(found->remark.empty());
}

TEST(SettingsTest, DifferencesStandFirst) {
  auto builder = training();
  const auto rows = compare(builder, "batch_size: 32\ndevice: cpu\nworkers: 24\n");
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].name, "loader.num_workers");
  EXPECT_FALSE(rows[1].differs);
}

TEST(SettingsTest, TheDeviceIsHeldAgainstWhereTheParametersAre) {
  for (const auto* yaml : {"device: cuda", "device: cuda:0", "device: gpu", "device: 0"}) {
    auto builder = training();
    EXPECT_TRUE(row(compare(builder, yaml), "device")->differs) << yaml;
  }
  for (const auto* yaml : {"device: cpu", "device: auto"}) {
    auto builder = training();
    EXPECT_FALSE(row(compare(builder, yaml), "device")->differs) << yaml;
  }
}

}  // namespace
}  // namespace fullwatt::explain
