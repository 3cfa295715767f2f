// `fullwatt tune --allow batch` on small trainings: what it says before each start, and what it takes.

#include "tests/support/temp_folder.hpp"
#include "tests/support/watched_test.hpp"
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fullwatt/base/text.hpp"

namespace fullwatt::tests {
namespace {

using base::contains;

class TuneBatchTest : public WatchedTest {
 protected:
  void SetUp() override {
    WatchedTest::SetUp();
    environment_["CUDA_VISIBLE_DEVICES"] = "";
  }
  base::ChildResult tune(std::string_view program) const {
    const auto script = folder_.write("train.py", std::string(program));
    return run({FULLWATT_PROGRAM, "tune", "--allow", "batch", "--json", "--no-proof", "--exact", "--output",
                folder_ / "plan.yaml", "--", python_, script});
  }
};

/// A step takes as long whatever its batch, until there are more than 40 samples in it: then there is no room. One
/// sample in 50 is long.
constexpr std::string_view kGrowing = R"(import time, torch
from torch import nn
torch.set_num_threads(1)
torch.manual_seed(7)
class Sequences(torch.utils.data.Dataset):
    def __len__(self):
        return 4000
    def __getitem__(self, i):
        return torch.full((64 if i % 50 == 49 else 8, 4), i / 4000), torch.tensor([float(i % 2)])
def padded(samples):
    xs, ys = zip(*samples)
    return nn.utils.rnn.pad_sequence(list(xs), batch_first=True), torch.stack(ys)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.head = nn.BatchNorm1d(4), nn.Linear(4, 1)
    def forward(self, x):
        return self.head(self.norm(x.mean(1)))
model = Net()
optimizer = torch.optim.RMSprop(model.parameters(), lr=0.001)
for epoch in range(100):
    for x, y in torch.utils.data.DataLoader(Sequences(), batch_size=10, shuffle=True, collate_fn=padded):
        if len(x) > 40: raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
        time.sleep(0.03)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
)";

TEST_F(TuneBatchTest, ALargerBatchIsPredictedTriedAndTakenAndOneWithoutRoomIsNoEnd) {
  const auto result = tune(kGrowing);
  if (contains(result.out, "Trials need")) GTEST_SKIP() << result.out;
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  for (const auto* said :
       {"the samples differ in length: each batch size is tried with the longest, too",
        "tries batch 20, predicted: at most ", "tries batch 40, predicted: ", " samples/s",
        "batch 80 ran out of memory", "the model's batch normalisation change with the batch (layers: 1)"})
    EXPECT_TRUE(contains(result.err, said)) << said << "\n" << result.err;
  const auto tuning = model::Json::parse(result.out);
  std::vector<int> sizes;
  for (const auto& batch : tuning["batches"]) {
    sizes.push_back(batch["size"]);
    EXPECT_EQ(batch["out_of_memory"], batch["size"] > 40) << batch;
    EXPECT_EQ(batch["predicted_low"].is_null(), batch["size"] == 10) << batch;
  }
  ASSERT_GE(sizes.size(), 4U) << result.err;
  EXPECT_EQ(std::vector<int>(sizes.begin(), sizes.begin() + 4), (std::vector<int>{10, 20, 40, 80})) << result.err;
  const auto& tried = tuning["tried"].back();
  EXPECT_EQ(tried["fix"]["id"], "batch-size") << tried;
  EXPECT_EQ(tried["fix"]["settings"]["size"], "40") << tried;
  EXPECT_EQ(tried["kept"], true);
  EXPECT_TRUE(tried["predicted"]["low_ms"].is_number()) << tried;
  EXPECT_TRUE(contains(read_all(folder_ / "plan.yaml"), "batch normalisation")) << read_all(folder_ / "plan.yaml");
}

/// torch as on a machine with two cards: the current one has 80 GB, and the model lies on one of 24 GB, of which the
/// program may take 4 GiB. A sample takes 40 MB, and an evaluation 3 GB in all.
constexpr std::string_view kOnSmallCard = R"(import time, types, torch
from torch import nn
torch.set_num_threads(1)
torch.manual_seed(7)
cuda, peak, totals = torch.cuda, [0, 0], (80 << 30, 24 << 30)
def reset(device):
    peak[1] = 500_000_000
def use(amount):
    if amount > 4 << 30: raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
    peak[:] = max(peak[0], amount), max(peak[1], amount)
cuda.is_initialized = lambda: True
cuda.is_current_stream_capturing = lambda: False
cuda.device_count = lambda: 2
cuda.current_device = lambda: 0
cuda.get_device_properties = lambda device: types.SimpleNamespace(name="card", major=9, minor=0, total_memory=totals[device])
cuda.memory_reserved = lambda device: peak[0] * device
cuda.memory_stats_as_nested_dict = lambda device: {"allocated_bytes": {"all": {"peak": peak[1]}}, "reserved_bytes": {"all": {"current": peak[0], "peak": peak[0]}}}
cuda.reset_peak_memory_stats = reset
cuda.mem_get_info = lambda device: (totals[device] - peak[0] - (1 << 30), totals[device])
cuda.get_per_process_memory_fraction = lambda device: 1 / 6
data = torch.utils.data.TensorDataset(torch.randn(4000, 8), torch.randn(4000, 1))
model = nn.Linear(8, 1)
optimizer = torch.optim.RMSprop(model.parameters(), lr=0.001)
for epoch in range(100):
    for step, (x, y) in enumerate(torch.utils.data.DataLoader(data, batch_size=10, shuffle=True)):
        use(500_000_000 + 40_000_000 * len(x))
        time.sleep(0.03)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        if step % 20 == 10:
            model.eval()
            use(3_000_000_000)
            model.train()
)";

TEST_F(TuneBatchTest, TheBatchGrowsUntilTheProgramsShareOfTheTrainedCardIsFull) {
  const auto result = tune(kOnSmallCard);
  if (contains(result.out, "Trials need")) GTEST_SKIP() << result.out;
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  const auto tuning = model::Json::parse(result.out);
  std::vector<int> sizes;
  for (const auto& batch : tuning["batches"]) {
    sizes.push_back(batch["size"]);
    EXPECT_EQ(batch["out_of_memory"], false) << batch;
    EXPECT_EQ(batch["peak_bytes"], 5e8 + 4e7 * batch["size"].get<double>()) << "an evaluation is no part of it";
  }
  EXPECT_EQ(sizes, (std::vector<int>{10, 20, 40, 72})) << result.err;
  EXPECT_EQ(tuning["batches"][2]["predicted_bytes"], 3e9) << "the evaluation takes more";
  EXPECT_EQ(tuning["batches"][3]["predicted_bytes"], 5e8 + 72 * 4e7);
  EXPECT_EQ(tuning["tried"].back()["fix"]["settings"]["size"], "72");
  EXPECT_EQ(tuning["tried"].back()["caveat"], "") << "nothing normalises by the batch";
}

/// 160 samples take 6.9 GB, and a fifth of the 4 GiB stays free for longer ones.
TEST_F(TuneBatchTest, ABatchWithoutRoomIsCutIntoThePartsThatWerePredictedToHaveIt) {
  std::string program(kOnSmallCard);
  const auto replace = [&](const std::string& what, const std::string& by) {
    program.replace(program.find(what), what.size(), by);
  };
  replace("batch_size=10", "batch_size=160");
  replace("time.sleep(0.03)", "time.sleep(0.002)");
  replace("step % 20 == 10", "False");  // it would be in the midst of a step
  const auto result = tune(program);
  if (contains(result.out, "Trials need")) GTEST_SKIP() << result.out;
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  for (const auto* parts : {"32", "16", "4"})
    EXPECT_TRUE(contains(result.err, fmt::format("tries it in {} parts", parts))) << parts << "\n" << result.err;
  for (const auto* parts : {"8", "2"})
    EXPECT_FALSE(contains(result.err, fmt::format("tries it in {} parts", parts))) << parts << "\n" << result.err;
  const auto tuning = model::Json::parse(result.out);
  EXPECT_EQ(tuning["plan"]["fixes"][0]["id"], "accumulation") << tuning["plan"];
  EXPECT_EQ(tuning["plan"]["fixes"][0]["settings"]["parts"], "4") << tuning["plan"];
}

}  // namespace
}  // namespace fullwatt::tests
