#include <algorithm>

#include <gtest/gtest.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/engine/config.hpp"
#include "fullwatt/engine/grid.hpp"
#include "fullwatt/engine/schedule.hpp"

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
  shuffle: no
train:
  epochs: 3
  batch_size: 512
  amp: true
  channels_last: false
  num_workers: 8
  pin_memory: true
  non_blocking: true
  gradient_accumulation_steps: 2
  compile_model: true
  compile_mode: "max-autotune"
  prefetch_factor: 4
  clip: 1.0
hardware: {device: cuda, allow_tf32: off}
optimizer: {lr: 3.0e-4, weight_decay: 0, betas: [0.8, 0.95], eps: 1e-6, fused: true}
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
  EXPECT_EQ(config->train.num_workers, 8);
  EXPECT_EQ(config->train.compile_mode, "max-autotune");
  EXPECT_DOUBLE_EQ(config->optimizer.beta1, 0.8);
  EXPECT_DOUBLE_EQ(config->optimizer.beta2, 0.95);
  EXPECT_DOUBLE_EQ(config->optimizer.epsilon, 1e-6);
}

TEST(EngineConfigTest, HalfPrecisionIsWhatTheCardHas) {
  EXPECT_EQ(precision_for(Precision::automatic, 0), Precision::fp32) << "on the CPU";
  EXPECT_EQ(precision_for(Precision::automatic, 7), Precision::fp16) << "V100, T4";
  EXPECT_EQ(precision_for(Precision::automatic, 8), Precision::bf16);
  EXPECT_EQ(precision_for(Precision::automatic, 12), Precision::bf16);
  EXPECT_EQ(precision_for(Precision::bf16, 7), Precision::bf16) << "as asked for";
  EXPECT_EQ(precision_for(Precision::automatic, 9, true), Precision::fp32) << "a narrow LSTM, with TF32";
  EXPECT_EQ(precision_for(Precision::automatic, 7, true), Precision::fp16) << "and without";
  EXPECT_EQ(precision_for(Precision::bf16, 9, true), Precision::bf16) << "as asked for";
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
  EXPECT_EQ(refusal("optimizer: {betas: 0.9}"),
            "line 3, optimizer.betas: it must be two numbers from 0 to 1, such as [0.9, 0.999], not '0.9'");
  EXPECT_TRUE(contains(parse_config("data: {folder: x}").error().message, "model.name is missing"));
  EXPECT_TRUE(contains(parse_config("").error().message, "line 1"));
}

TEST(EngineConfigTest, WhatCannotBeTogetherIsNamedWithItsLinesAndWhatToDo) {
  const auto both = [](const std::string& text, const std::vector<std::string>& overrides = {}) {
    const auto config = parse_config(text, overrides);
    return config ? "" : config.error().message + " | " + config.error().remedy;
  };
  EXPECT_EQ(both(kLeast + std::string("optimizer:\n  lr: 1e-4\n  lr_min: 1e-3")),
            "line 5 and line 4: optimizer.lr_min: 0.001 is larger than optimizer.lr: 0.0001 | "
            "The rate falls from lr to lr_min: take a smaller lr_min or a larger lr.");
  EXPECT_EQ(both(kLeast + std::string("optimizer: {lr_min: 1e-3}"), {"optimizer.lr=1e-4"}),
            "line 3 and 'optimizer.lr=1e-4': optimizer.lr_min: 0.001 is larger than optimizer.lr: 0.0001 | "
            "The rate falls from lr to lr_min: take a smaller lr_min or a larger lr.");
  EXPECT_EQ(both(kLeast + std::string("optimizer: {name: adamw, nesterov: true}")),
            "line 3: optimizer.nesterov needs optimizer.name: sgd and a momentum | "
            "Leave out optimizer.nesterov, or take optimizer: {name: sgd, momentum: 0.9}.");
  EXPECT_EQ(both(kLeast + std::string("optimizer: {fused: false}")),
            "line 3: optimizer.fused: false is not possible; this engine's optimisers are fused | "
            "Leave out optimizer.fused.");
  EXPECT_EQ(both("model:\n  name: gpt2\n  heads: 5\ndata: {folder: here}"),
            "line 3: model.embedding: 768 is no multiple of model.heads: 5 | "
            "Take model.embedding: 770, or another number of heads.");
  EXPECT_EQ(both("model: {name: lstm}\ndata:\n  folder: here\n  format: images\n  fields: {images: x}"),
            "line 5 and line 4: data.fields is for .npy files; with data.format: images the fields are images and "
            "labels | Leave out data.fields, or take data.format: npy.");
  EXPECT_EQ(both(kLeast, {"data.mean=0.5"}),
            "'data.mean=0.5': data.mean has 1 numbers and data.std 0 | "
            "Give both, with a number for each channel, or neither.");
  EXPECT_EQ(both("model: {name: mine,\n  settings: {depth: 3}}\ndata: {folder: here}"),
            "line 2: model.settings are for a model of model.library, which is missing | "
            "Name the library under model.library, or leave out model.settings.");
  EXPECT_EQ(both("train: {}\nmodel: {}\n"),
            "line 2: model.name is missing: which model is to be trained? | "
            "Name one, as in model: {name: lstm}; docs/train.md lists them.");
  EXPECT_EQ(both("model: {name: lstm}"),
            "data.folder is missing: where are the samples? | Name the folder, as in data: {folder: samples}.");
}

TEST(EngineConfigTest, PicturesAreChangedAsListsSay) {
  const auto none = parse_config(kLeast);
  ASSERT_TRUE(none) << none.error().message;
  EXPECT_FALSE(none->augment.moves() || none->augment.colours() || none->train.activation_checkpointing);
  const auto config = parse_config(std::string(kLeast) + "augment: {flip: 0.5, shift: 4, brightness: [0.8, 1.2]}\n",
                                   {"data.mean=0.5,0.4", "data.std=0.2, 0.3", "augment.contrast=1,2"});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_TRUE(config->augment.moves());
  EXPECT_DOUBLE_EQ(config->augment.brightness.most, 1.2);
  EXPECT_DOUBLE_EQ(config->augment.contrast.most, 2);
  EXPECT_EQ(config->data.normalisation.mean, (std::vector<double>{0.5, 0.4}));
  EXPECT_EQ(config->data.normalisation.deviation, (std::vector<double>{0.2, 0.3}));
  EXPECT_EQ(refusal("augment: {brightness: [1, x]}"),
            "line 3, augment.brightness: it must be a number from 0 to 100, not 'x'");
  EXPECT_EQ(refusal("augment: {contrast: [2, 1]}"),
            "line 3, augment.contrast: the smaller factor must come first, not '2,1'");
  EXPECT_EQ(refusal("augment: {flips: 1}"), "line 3: there is no 'flips' in 'augment'; did you mean 'flip'?");
  EXPECT_EQ(refusal("", {"data.std=0"}), "'data.std=0': it must be a number from 1e-06 to 1e+06, not '0'");
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

TEST(EngineConfigTest, AGridIsEveryValueWithEveryOther) {
  const auto config = parse_config(std::string(kLeast) +
                                   "output: {folder: out}\n"
                                   "grid: {model.hidden: [64, 128], optimizer.lr: [1e-3, 3e-4, 1e-4]}\n");
  ASSERT_TRUE(config) << config.error().message;
  const auto trials = trials_of(*config);
  ASSERT_EQ(trials.size(), 6U);
  EXPECT_EQ(trials[1].name, "model.hidden=64,optimizer.lr=3e-4");
  const auto one = parse_config(kLeast, trials[5].overrides);
  ASSERT_TRUE(one) << one.error().message;
  EXPECT_EQ(one->model.hidden, 128);
  EXPECT_DOUBLE_EQ(one->optimizer.lr, 1e-4);
  EXPECT_EQ(one->output.folder, "out/model.hidden=128,optimizer.lr=1e-4");
  EXPECT_EQ(refusal("grid: {model.hidden: 64}"), "line 3: 'model.hidden' must list values, as in [64, 128]");
  EXPECT_EQ(refusal("grid: {model.hiden: [64]}"),
            "line 3: 'model.hiden=64': there is no 'hiden' in 'model'; did you mean 'hidden'?");
}

TEST(EngineConfigTest, RatesWarmUpAndFall) {
  OptimizerConfig config;
  config.lr = 1;
  config.lr_min = 0.1;
  config.warmup_steps = 4;
  EXPECT_DOUBLE_EQ(rate_at(config, 0, 104), 0.25);
  EXPECT_DOUBLE_EQ(rate_at(config, 3, 104), 1);
  EXPECT_DOUBLE_EQ(rate_at(config, 100, 104), 1);
  config.schedule = "linear";
  EXPECT_DOUBLE_EQ(rate_at(config, 4, 104), 1);
  EXPECT_DOUBLE_EQ(rate_at(config, 54, 104), 0.55);
  EXPECT_DOUBLE_EQ(rate_at(config, 104, 104), 0.1);
  config.schedule = "cosine";
  EXPECT_DOUBLE_EQ(rate_at(config, 54, 104), 0.55);
  EXPECT_NEAR(rate_at(config, 29, 104), 0.1 + 0.9 * 0.853553, 1e-6);
  EXPECT_DOUBLE_EQ(rate_at(config, 5000, 104), 0.1);
}

TEST(EngineConfigTest, StartingValuesAreForWhatTheFileLeavesOpen) {
  const auto config = parse_config(std::string(kLeast) + "train: {batch_size: 64}\n", {"train.seed=3"},
                                   {"train.batch_size=512", "train.seed=1", "train.amp=fp16"});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->train.batch_size, 64);
  EXPECT_EQ(config->train.seed, 3);
  EXPECT_EQ(config->train.amp, Precision::fp16);
  EXPECT_FALSE(parse_config(kLeast, {}, {"train.bach_size=1"}));
}

TEST(EngineConfigTest, AModelOfOnesOwnHasSettingsOfItsOwn) {
  const auto config = parse_config("model: {name: mine, library: m.so, settings: {depth: 3}}\ndata: {folder: here}\n",
                                   {"model.settings.width=a b"});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->model.library, "m.so");
  EXPECT_EQ(config->model.settings, (std::map<std::string, std::string>{{"depth", "3"}, {"width", "a b"}}));
  EXPECT_TRUE(contains(refusal("", {"model.settings.depth=3"}), "model.library, which is missing"));
  const auto list = parse_config("model: {name: mine, library: m.so, settings: [3]}\ndata: {folder: here}\n");
  EXPECT_EQ(list.error().message, "line 1: 'model.settings' must have names and values");
}

TEST(EngineConfigTest, LimitsOfFieldsAreWholeNumbers) {
  const auto config = parse_config("model: {name: lstm}\ndata: {folder: here, limits: {labels: 10, tokens: 50257}}\n",
                                   {"data.limits.labels=5"});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->data.limits, (std::map<std::string, std::int64_t>{{"labels", 5}, {"tokens", 50257}}));
  EXPECT_TRUE(
      contains(refusal("", {"data.limits.labels=0"}), "'data.limits.labels=0': it must be a whole number from 1"));
  const auto wrong = parse_config("model: {name: lstm}\ndata:\n  folder: here\n  limits: {labels: many}\n");
  EXPECT_TRUE(contains(wrong.error().message, "line 4, data.limits.labels: it must be a whole number from 1"))
      << wrong.error().message;
}

TEST(EngineConfigTest, TheCacheOfTheDeviceMayBeLeftToIt) {
  EXPECT_EQ(parse_config(kLeast)->data.device_cache_gb, 0);
  EXPECT_EQ(parse_config(kLeast, {"data.device_cache_gb=2.5"})->data.device_cache_gb, 2.5);
  const auto automatic = parse_config(kLeast, {"data.device_cache_gb=auto"});
  EXPECT_EQ(automatic->data.device_cache_gb, std::nullopt);
  const auto settings = settings_of(*automatic);
  EXPECT_NE(std::ranges::find(settings, std::pair<std::string, std::string>{"data.device_cache_gb", "auto"}),
            settings.end());
  EXPECT_TRUE(
      contains(refusal("", {"data.device_cache_gb=all"}), "it must be auto, or a number from 0 to 100000, not 'all'"));
}

TEST(EngineConfigTest, SettingsAreToldAsTheyAre) {
  const auto settings = settings_of(*parse_config(kLeast, {"train.amp=bf16"}));
  EXPECT_EQ(settings.front(), (std::pair<std::string, std::string>{"model.name", "lstm"}));
  EXPECT_NE(std::ranges::find(settings, std::pair<std::string, std::string>{"train.amp", "bf16"}), settings.end());
}

}  // namespace
}  // namespace fullwatt::engine
