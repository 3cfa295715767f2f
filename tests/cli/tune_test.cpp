// `fullwatt tune` on a small training of real PyTorch: the plan it writes, the proof, and that nothing else is written.

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <optional>
#include <thread>

#include "tests/support/temp_folder.hpp"
#include "tests/support/watched_test.hpp"
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/tune/trial.hpp"

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
  std::vector<std::string> command(const std::string& program) const {
    return {FULLWATT_PROGRAM, "tune", "--output", folder_ / "plan.yaml", "--", python_, program};
  }
  /// As a child does for a moment that the tuning was starting when it was killed.
  void hold_lock() const {
    const auto tunes = record::list_runs(home_ / "tunes");
    if (tunes.empty()) return;
    const int file = ::open((home_ / ("tunes/" + tunes.front() + "/asked.json")).c_str(), O_RDONLY | O_CLOEXEC);
    ::flock(file, LOCK_EX);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    ::close(file);
  }
  /// Starts it and sends it a signal as soon as so many trials are over; gives how it ended, or nothing when that was
  /// before.
  std::optional<int> cut_off(const std::string& program, int trials, int signal) const {
    const int child = ::fork();
    if (child == 0) {
      auto argv = command(program);
      std::vector<char*> words;
      for (auto& word : argv) words.push_back(word.data());
      words.push_back(nullptr);
      for (const auto& [name, value] : environment_) ::setenv(name.c_str(), value.c_str(), 1);
      ::execv(words[0], words.data());
      ::_exit(127);
    }
    int status = 0;
    while (::waitpid(child, &status, WNOHANG) == 0) {
      const auto tunes = record::list_runs(home_ / "tunes");
      if (!tunes.empty() && tune::kept_trials(home_ / ("tunes/" + tunes.front())) >= trials) {
        ::kill(child, signal);
        ::waitpid(child, &status, 0);
        return status;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return std::nullopt;
  }
  /// Such as inside a chroot.
  static bool no_sandbox(const base::ChildResult& result) { return contains(result.out, "Trials need"); }
};

TEST_F(TuneTest, ASlowDataSetIsCachedAndProvedFasterAlsoWhenItWasCutOff) {
  const auto program = folder_.write("train.py", std::string(kTraining));
  const bool is_cut = cut_off(program, 2, SIGKILL).has_value();
  std::thread child([&] { hold_lock(); });
  const auto result = run(command(program));
  child.join();
  if (no_sandbox(result)) GTEST_SKIP() << result.out;
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_TRUE(is_cut);
  EXPECT_TRUE(contains(result.err, "goes on where it was cut off: 2 starts")) << result.err;
  const auto tunes = record::list_runs(home_ / "tunes");
  ASSERT_EQ(tunes.size(), 1U);
  const auto kept = fs::path(home_ / "tunes") / tunes[0];
  EXPECT_TRUE(contains(read_all(kept / "report.html"), "sample-cache"));
  EXPECT_FALSE(fs::exists(kept / "1")) << "trials are taken away";
  EXPECT_FALSE(fs::exists(folder_ / "checkpoint.pt")) << "a trial wrote into the user's folder";
  const auto tuning = model::Json::parse(read_all(kept / "tuning.json"));
  EXPECT_EQ(tuning["tried"][0]["fix"]["id"], "sample-cache") << result.err;
  if (tuning["speed"]["low"].get<double>() <= 1) {
    EXPECT_EQ(tuning["proved"], false);
    EXPECT_FALSE(fs::exists(folder_ / "plan.yaml")) << "what is not proved is not written";
    GTEST_SKIP() << "this machine was too uneven for a proof: " << result.out;
  }
  EXPECT_EQ(tuning["proved"], true) << result.out;
  EXPECT_TRUE(contains(read_all(folder_ / "plan.yaml"), "id: sample-cache")) << result.out << result.err;
  EXPECT_TRUE(contains(result.out, "the loss is not worse")) << result.out;
}

TEST_F(TuneTest, AnInterruptEndsTheStartThatIsRunningAndGivesTheBestSoFar) {
  const auto program = folder_.write("train.py", std::string(kTraining));
  const auto ended = cut_off(program, 3, SIGINT);
  ASSERT_TRUE(ended);
  if (record::list_runs(home_ / "tunes").empty()) GTEST_SKIP() << "no sandbox";
  EXPECT_TRUE(WIFEXITED(*ended) && WEXITSTATUS(*ended) == 0) << *ended;
  EXPECT_EQ(tune::kept_trials(home_ / ("tunes/" + record::list_runs(home_ / "tunes").front())), 3) << "it waited";
  const auto plan = read_all(folder_ / "plan.yaml");
  EXPECT_TRUE(contains(plan, "NOT PROVED")) << plan;
  EXPECT_TRUE(contains(plan, "id: sample-cache")) << plan;
}

/// A card with room for eight samples, as the program's own words have it.
TEST_F(TuneTest, ABatchWithoutRoomIsCutIntoPartsWhereThatIsAllowed) {
  const auto program = folder_.write("train.py", R"(import torch
from torch import nn
torch.set_num_threads(1)
data = torch.utils.data.TensorDataset(torch.randn(3200, 8), torch.randn(3200, 1))
model = nn.Linear(8, 1)
optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01)
for epoch in range(1000):
    for x, y in torch.utils.data.DataLoader(data, batch_size=32, shuffle=True):
        if len(x) > 8: raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
)");
  auto asked = command(program);
  const auto refused = run(asked);
  EXPECT_EQ(refused.exit_code, 3) << refused.err;
  EXPECT_TRUE(contains(refused.err, "with --allow batch it is tried in parts")) << refused.err;
  asked.insert(asked.begin() + 2, {"--allow", "batch", "--minutes", "0.2", "--keep"});
  const auto allowed = run(asked);
  EXPECT_EQ(allowed.exit_code, 0) << allowed.err;
  EXPECT_TRUE(contains(allowed.out, "accumulation parts=4")) << allowed.out << allowed.err;
  const auto plan = read_all(folder_ / "plan.yaml");
  EXPECT_TRUE(contains(plan, "- id: accumulation")) << plan;
  EXPECT_TRUE(contains(plan, "parts: 4")) << plan;
  const auto tunes = record::list_runs(home_ / "tunes");
  const auto start = [&](const auto& tune) { return fs::path(home_ / "tunes") / tune / "3/run"; };
  const auto kept = std::ranges::find_if(tunes, [&](const auto& tune) { return fs::exists(start(tune)); });
  ASSERT_NE(kept, tunes.end()) << "what was asked to be kept is";
  const auto explained = run({FULLWATT_PROGRAM, "report", start(*kept).string()});
  EXPECT_EQ(explained.exit_code, 0) << explained.err;
  EXPECT_TRUE(contains(explained.out, "One step")) << explained.out;
}

TEST_F(TuneTest, AProgramThatFailsIsToldWithItsOwnWords) {
  const auto result = run(command(folder_.write("train.py", "raise ValueError('no such data set')\n")));
  if (no_sandbox(result)) GTEST_SKIP() << result.out;
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_TRUE(contains(result.out, "no such data set")) << result.out;
  EXPECT_FALSE(fs::exists(folder_ / "plan.yaml"));
}

}  // namespace
}  // namespace fullwatt::tests
