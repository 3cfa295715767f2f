#include <algorithm>

#include <gtest/gtest.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/engine/config.hpp"

namespace fullwatt::engine {
namespace {

using base::contains;

constexpr const char* kLeast = "model: {name: lstm}\ndata: {folder: here}\n";

std::string refusal(const std::string& more, const std::vector<std::string>& overrides = {}) {
  const auto config = parse_config(kLeast + more, overrides);
  return config ? "" : config.error().message;
}

TEST(EngineConfigTest, EverySettingOfTheFileIsTaken) {
  const auto config = parse_config(R"(
model: {name: keypoint, channels: 32, dropout: 0.1}
data:
  folder: data
  fields: {images: 'batch*_images.npy', offsets: 'batch*_offsets.npy'}
  workers: 8
  shuffle: no
train: {epochs: 3, batch_size: 512, gradient_accumulation_steps: 2, amp: true, channels_last: false, clip: 1.0}
hardware: {device: cuda, allow_tf32: off}
optimizer: {lr: 3.0e-4, weight_decay: 0}
)");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->model.name, "keypoint");
  EXPECT_EQ(config->model.channels, 32);
  EXPECT_DOUBLE_EQ(config->model.dropout, 0.1);
  EXPECT_EQ(config->data.fields.at("offsets"), "batch*_offsets.npy");
  EXPECT_FALSE(config->data.shuffle);
  EXPECT_EQ(config->train.accumulation, 2);
  EXPECT_EQ(config->train.amp, Precision::automatic);
  EXPECT_DOUBLE_EQ(config->optimizer.lr, 3e-4);
  EXPECT_DOUBLE_EQ(config->optimizer.weight_decay, 0);
  EXPECT_FALSE(config->hardware.allow_tf32);
}

TEST(EngineConfigTest, PrecisionIsReadAsPeopleWriteIt) {
  for (const auto& [word, precision] : std::map<std::string, Precision>{{"true", Precision::automatic},
                                                                        {"'true'", Precision::automatic},
                                                                        {"True", Precision::automatic},
                                                                        {"bf16", Precision::bf16},
                                                                        {"fp16", Precision::fp16},
                                                                        {"false", Precision::fp32},
                                                                        {"none", Precision::fp32}}) {
    const auto config = parse_config(kLeast + ("train: {amp: " + word + "}"));
    ASSERT_TRUE(config) << word;
    EXPECT_EQ(config->train.amp, precision) << word;
  }
  EXPECT_EQ(refusal("train: {amp: half}"), "line 3, train.amp: it must be true, bf16, fp16, false or none, not 'half'");
}

TEST(EngineConfigTest, WhatIsWrongIsNamedWithItsLineAndWhatWasMeant) {
  EXPECT_EQ(refusal("train:\n  batchsize: 3"),
            "line 4: there is no 'batchsize' in 'train'; did you mean 'batch_size'?");
  EXPECT_EQ(refusal("trian: {}"), "line 3: there is no section 'trian'; did you mean 'train'?");
  EXPECT_EQ(refusal("train: {batch_size: many}"),
            "line 3, train.batch_size: it must be a whole number from 1 to 16777216, not 'many'");
  EXPECT_EQ(refusal("train: {batch_size: 0}"),
            "line 3, train.batch_size: it must be a whole number from 1 to 16777216, not '0'");
  EXPECT_EQ(refusal("optimizer: {lr: -1}"), "line 3, optimizer.lr: it must be a number from 0 to 1000, not '-1'");
  EXPECT_EQ(refusal("hardware: {device: tpu}"),
            "line 3, hardware.device: it must be one of auto, cpu, cuda, not 'tpu'");
  EXPECT_EQ(refusal("train: {seed: 1, seed: 2}"), "line 3: 'seed' stands twice");
  EXPECT_EQ(refusal("train: {epochs: [1, 2]}"), "line 3: epochs must be a single value");
  EXPECT_EQ(refusal("train: 3"), "line 3: the section 'train' must have keys and values");
  EXPECT_TRUE(contains(refusal("train: {"), "line "));
  EXPECT_EQ(refusal("hardware: {device: cpu}\ntrain: {amp: fp16}"),
            "train.amp: fp16 and hardware.device: cpu do not go together; CPUs train in fp32 or bf16");
  EXPECT_TRUE(contains(parse_config("data: {folder: x}").error().message, "model.name is missing"));
  EXPECT_TRUE(contains(parse_config("").error().message, "line 1"));
}

TEST(EngineConfigTest, OverridesComeLastAndAreCheckedAlike) {
  const auto config = parse_config(kLeast, {"train.batch_size=128", "model.hidden=256"});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->train.batch_size, 128);
  EXPECT_EQ(config->model.hidden, 256);
  EXPECT_EQ(refusal("", {"train.batch=3"}), "'train.batch=3': there is no 'batch' in 'train'");
  EXPECT_EQ(refusal("", {"batch_size=3"}), "'batch_size=3': an override looks like train.batch_size=128");
  EXPECT_EQ(refusal("", {"train.epochs=x"}),
            "'train.epochs=x': it must be a whole number from 1 to 1099511627776, not 'x'");
}

TEST(EngineConfigTest, SettingsAreToldAsTheyAre) {
  const auto settings = settings_of(*parse_config(kLeast, {"train.amp=bf16"}));
  EXPECT_EQ(settings.front(), (std::pair<std::string, std::string>{"model.name", "lstm"}));
  EXPECT_NE(std::ranges::find(settings, std::pair<std::string, std::string>{"train.amp", "bf16"}), settings.end());
}

}  // namespace
}  // namespace fullwatt::engine
