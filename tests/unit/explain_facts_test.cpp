// The agent's facts, typed; what is broken is left out.

#include <string>

#include "tests/support/run_builder.hpp"
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fullwatt/explain/facts.hpp"

namespace fullwatt::explain {
namespace {

ProcessFacts parsed(tests::RunBuilder& builder) {
  return parse_facts(builder.process());
}

TEST(Facts, EveryKindIsRead) {
  tests::RunBuilder builder;
  builder
      .fact("gpu", R"({"index":0,"name":"NVIDIA H200","uuid":"GPU-1","capability":[9,0],"memory_bytes":150000000000})")
      .fact(
          "loader",
          R"({"id":1,"site":{"file":"/a/train.py","line":7,"function":"main"},"dataset":"Set","dataset_length":25000,)"
          R"("batch_size":32,"num_workers":2,"pin_memory":false,"prefetch_factor":null,"batches":781})")
      .fact("model", R"({"id":0,"class":"Net","parameters":1000,"devices":{"cuda:0":1000},"dtypes":{"float32":1000}})")
      .fact("optimizer", R"({"id":0,"class":"AdamW","fused":null,"foreach":true,"lr":0.001})")
      .fact("input", R"({"shape":[32,3,224,224],"dtype":"float32","device":"cuda:0","samples":32})")
      .fact("settings", R"({"when":"end","values":{"cudnn.benchmark":false,"matmul.precision":"highest","threads":8}})")
      .fact("environment", R"({"values":{"OMP_NUM_THREADS":"4"}})")
      .fact("autocast", R"({"device":"cuda","dtype":"bfloat16","enabled":true})")
      .fact("flops", R"({"total":1e12,"by_dtype":{"float32":1e12}})")
      .fact("distributed", R"({"backend":"nccl","world_size":4,"bucket_cap_mb":25})")
      .fact("argument", R"({"values":{"workers":2,"lr":0.1,"amp":true},"given":["workers"]})")
      .fact("device_check", R"({"parameters":{"cuda:0":10},"consistent":true,"uuid":"GPU-1"})")
      .fact("memory",
            R"({"device":1,"peak_reserved_bytes":9,"training_peak_bytes":7,"card_bytes":80,"allowed_bytes":40})")
      .fact("lengths", R"({"varies":true,"read":3,"of":9,"longest":[4,1,0]})")
      .fact("profiler", R"({"who":"torch.profiler","state":"start"})");
  const auto facts = parsed(builder);
  EXPECT_EQ(facts.process.torch, "2.11.0");
  ASSERT_EQ(facts.gpus.size(), 1U);
  EXPECT_EQ(facts.gpus[0].capability, "9.0");
  ASSERT_EQ(facts.loaders.size(), 1U);
  EXPECT_EQ(facts.loaders[0].num_workers, 2);
  EXPECT_EQ(facts.loaders[0].site.line, 7);
  EXPECT_EQ(facts.loaders[0].prefetch_factor, std::nullopt);
  EXPECT_EQ(facts.loaders[0].pin_memory, false);
  EXPECT_TRUE(facts.on_gpu());
  EXPECT_EQ(facts.optimizers[0].fused, std::nullopt);
  EXPECT_EQ(facts.optimizers[0].foreach, true);
  EXPECT_EQ(facts.input->shape.size(), 4U);
  EXPECT_EQ(facts.flag("cudnn.benchmark"), false);
  EXPECT_EQ(facts.setting("threads"), "8");
  EXPECT_EQ(facts.setting("nothing"), std::nullopt);
  EXPECT_EQ(facts.variable("OMP_NUM_THREADS"), "4");
  EXPECT_EQ(facts.autocasts[0].dtype, "bfloat16");
  EXPECT_DOUBLE_EQ(facts.flops->total, 1e12);
  EXPECT_EQ(facts.distributed->world_size, 4);
  EXPECT_EQ(facts.arguments[0].values.at("amp"), "true");
  EXPECT_EQ(facts.device_check->consistent, true);
  EXPECT_EQ(facts.profilers[0].who, "torch.profiler");
  EXPECT_EQ(facts.memory->device, "1");
  EXPECT_EQ(facts.memory->training_peak_bytes, 7U);
  EXPECT_EQ(facts.memory->card_bytes, 80U);
  EXPECT_EQ(facts.memory->allowed_bytes, 40U);
  EXPECT_EQ(facts.memory->beside_bytes, std::nullopt);
  EXPECT_TRUE(facts.lengths->varies);
  EXPECT_EQ(facts.lengths->of, 9U);
  EXPECT_EQ(facts.lengths->longest, (std::vector<double>{4, 1, 0}));
}

TEST(Facts, ALaterFactOfTheSameIdReplacesTheEarlierOne) {
  tests::RunBuilder builder;
  builder.fact("loader", R"({"id":1,"num_workers":2})").fact("loader", R"({"id":2,"num_workers":0})");
  builder.fact("loader", R"({"id":1,"num_workers":8})");
  const auto facts = parsed(builder);
  ASSERT_EQ(facts.loaders.size(), 2U);
  EXPECT_EQ(facts.loaders[0].num_workers, 8);
}

TEST(Facts, TurnsStandInTheOrderInWhichTheyWereMeasured) {
  tests::RunBuilder builder;
  for (const auto* told : {R"({"id":"bf16","state":"begun"})", R"({"id":"bf16","state":"measured","kept":false})",
                           R"({"id":"cuda-graphs","state":"begun"})", R"({"id":"cuda-graphs","state":"measured"})",
                           R"({"id":"bf16","state":"measured","kept":true})"})
    builder.fact("turn", told);
  const auto facts = parsed(builder);
  ASSERT_EQ(facts.turns.size(), 2U);
  EXPECT_EQ(facts.turns[1].id, "bf16");
  EXPECT_EQ(facts.turns[1].kept, true);
}

TEST(Facts, TheTrainingLoaderIsTheOneThatGaveMostBatches) {
  tests::RunBuilder builder;
  builder.fact("loader", R"({"id":1})").fact("loader", R"({"id":2})");
  builder.fact("epoch", R"({"loader":2,"batches":1000})").fact("epoch", R"({"loader":1,"batches":10})");
  EXPECT_EQ(parsed(builder).training_loader()->id, 2);
}

TEST(Facts, LoadersThatTheTrainingReadsGoBeforeOthers) {
  tests::RunBuilder builder;
  builder.fact("loader", R"({"id":1})").fact("loader", R"({"id":2,"trains":true})");
  builder.fact("epoch", R"({"loader":1,"batches":1000})");
  EXPECT_EQ(parsed(builder).training_loader()->id, 2);
}

TEST(Facts, ALoaderThatIsMadeAnewForEveryEpochIsOne) {
  tests::RunBuilder builder;
  const auto made = [&](int id, int line, int length) {
    builder.fact("loader", fmt::format(R"({{"id":{},"dataset_length":{},"site":{{"file":"/a/train.py","line":{}}}}})",
                                       id, length, line));
    builder.fact("epoch", fmt::format(R"({{"loader":{},"batches":10}})", id));
  };
  made(0, 7, 300);
  made(1, 9, 300);
  made(2, 7, 300);
  made(3, 7, 200);
  builder.fact("loader", R"({"id":2,"dataset_length":300,"site":{"file":"/a/train.py","line":7},"trains":true})");
  const auto facts = parsed(builder);
  std::vector<int> loaders;
  std::vector<int> epochs;
  for (const auto& loader : facts.loaders) loaders.push_back(loader.id);
  for (const auto& epoch : facts.epochs) epochs.push_back(epoch.loader);
  EXPECT_EQ(loaders, (std::vector{0, 1, 3}));
  EXPECT_TRUE(facts.loaders[0].trains) << "some are told before the training reads them";
  EXPECT_EQ(epochs, (std::vector{0, 1, 0, 3}));
}

TEST(Facts, WrongTypesAndBrokenLinesAreIgnored) {
  tests::RunBuilder builder;
  builder.fact("loader", R"({"id":"one","num_workers":"two","site":7,"batch_size":-3,"pin_memory":1,"batches":1.5})");
  builder.fact("model", R"({"devices":["cuda:0"],"parameters":1e300,"dtypes":null})");
  builder.fact("flops", R"({"by_op":{"mm":"many"},"total":[1]})");
  builder.fact("input", R"({"shape":[1,"x",-2]})");
  builder.process().facts.push_back({"loader", "{not json"});
  builder.process().facts.push_back({"loader", "[1,2]"});
  builder.process().facts.push_back({"unheard-of", "{}"});
  const auto facts = parsed(builder);
  ASSERT_EQ(facts.loaders.size(), 1U);
  EXPECT_EQ(facts.loaders[0].num_workers, std::nullopt);
  EXPECT_EQ(facts.loaders[0].batch_size, std::nullopt);
  EXPECT_EQ(facts.loaders[0].pin_memory, std::nullopt);
  EXPECT_EQ(facts.loaders[0].batches, std::nullopt);
  EXPECT_FALSE(facts.loaders[0].site.known());
  EXPECT_EQ(facts.models[0].parameters, 0U);
  EXPECT_TRUE(facts.flops->by_op.empty());
  EXPECT_FALSE(facts.on_gpu());
}

}  // namespace
}  // namespace fullwatt::explain
