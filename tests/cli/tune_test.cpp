// `fullwatt tune` on a small training of real PyTorch: the plan it writes, the proof, and that nothing else is written.

#include <filesystem>

#include "tests/support/temp_folder.hpp"
#include "tests/support/watched_test.hpp"
#include <gtest/gtest.h>

#include "fullwatt/base/text.hpp"

namespace fullwatt::tests {
namespace {

namespace fs = std::filesystem;
using base::contains;

/// Its samples take their time, and are the same whenever they are asked for.
constexpr std::string_view kTraining = R"(import time, torch
from torch import nn
torch.manual_seed(7)
torch.set_num_threads(1)
class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 4096
    def __getitem__(self, i):
        time.sleep(0.004)
        return torch.full((8,), i / 4096), torch.tensor([float(i % 2)])
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01)
for epoch in range(100):
    for x, y in torch.utils.data.DataLoader(Slow(), batch_size=8, shuffle=True):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        open("checkpoint.pt", "w").write("x")
)";

class TuneTest : public WatchedTest {
 protected:
  void SetUp() override {
    WatchedTest::SetUp();
    environment_["CUDA_VISIBLE_DEVICES"] = "";
  }
  base::ChildResult tune(const std::string& program) const {
    return run({FULLWATT_PROGRAM, "tune", "--seeds", "3", "--output", folder_ / "plan.yaml", "--", python_, program});
  }
  /// Such as inside a chroot.
  static bool no_sandbox(const base::ChildResult& result) { return contains(result.out, "Trials need"); }
};

TEST_F(TuneTest, ASlowDataSetIsCachedAndProvedFaster) {
  const auto result = tune(folder_.write("train.py", std::string(kTraining)));
  if (no_sandbox(result)) GTEST_SKIP() << result.out;
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_TRUE(contains(read_all(folder_ / "plan.yaml"), "id: sample-cache")) << result.out << result.err;
  EXPECT_TRUE(contains(result.out, "the loss is not worse")) << result.out;
  EXPECT_FALSE(fs::exists(folder_ / "checkpoint.pt")) << "a trial wrote into the user's folder";
}

TEST_F(TuneTest, AProgramThatFailsIsToldWithItsOwnWords) {
  const auto result = tune(folder_.write("train.py", "raise ValueError('no such data set')\n"));
  if (no_sandbox(result)) GTEST_SKIP() << result.out;
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_TRUE(contains(result.out, "no such data set")) << result.out;
  EXPECT_FALSE(fs::exists(folder_ / "plan.yaml"));
}

}  // namespace
}  // namespace fullwatt::tests
