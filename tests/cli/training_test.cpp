// `fullwatt run` around real trainings, on the CPU: the figures are the training's own, and whatever happens to it, it
// is never lost and always explained.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <map>
#include <string>
#include <thread>

#include "tests/support/watched_test.hpp"
#include <sys/wait.h>
#include <unistd.h>

namespace fullwatt::tests {
namespace {

namespace fs = std::filesystem;
using base::ChildResult;
using base::contains;

/// A training of 60 steps. `{happens}` stands for what is done after each of them.
constexpr std::string_view kTraining = R"(import os, sys, time, torch
from torch import nn
torch.manual_seed(7)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(torch.randn({samples}, 64), torch.randn({samples}, 1))
ends = []
def prepare():
    time.sleep(0.004)
def happens(step):
    {happens}
for x, y in torch.utils.data.DataLoader(data, batch_size=16, shuffle=True):
    prepare()
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    ends.append(time.perf_counter())
    happens(len(ends))
lengths = [1e3 * (b - a) for a, b in zip(ends[10:], ends[11:])]
print("loss", loss.item().hex(), torch.random.get_rng_state().sum().item())
print("steps", len(ends))
print("median_ms", sorted(lengths)[len(lengths) // 2])
)";

class TrainingTest : public WatchedTest {
 protected:
  void SetUp() override {
    WatchedTest::SetUp();
    environment_["CUDA_VISIBLE_DEVICES"] = "";
  }

  std::string script(std::string_view happens = "pass", int steps = 60) const {
    auto text = std::string(kTraining);
    const auto put = [&](std::string_view name, std::string_view value) {
      for (auto at = text.find(name); at != std::string::npos; at = text.find(name))
        text.replace(at, name.size(), value);
    };
    put("{happens}", happens);
    put("{samples}", std::to_string(16 * steps));
    return folder_.write("train.py", text);
  }
  ChildResult watch(const std::string& program, std::vector<std::string> options = {}) const {
    return watched({python_, program}, std::move(options));
  }
  ChildResult shell(const std::string& command) const { return run({"/bin/sh", "-c", command}); }
};

TEST_F(TrainingTest, FiguresAreTheTrainingsOwn) {
  const auto result = watch(script("pass", 600));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto told = report();
  ASSERT_TRUE(told.is_object()) << result.err;
  EXPECT_EQ(std::to_string(told["steps"].get<int>()), printed(result, "steps"));
  const double own = std::stod(printed(result, "median_ms"));
  EXPECT_NEAR(told["step_ms"]["median"].get<double>(), own, 0.2 * own) << "the same steps by two clocks";
  const double mean = told["step_ms"]["mean"].get<double>();
  EXPECT_GE(mean, 4);
  EXPECT_NEAR(told["samples_per_second"].get<double>(), 16e3 / mean, 0.01 * 16e3 / mean);
  double sum = 0;
  std::map<std::string, double> functions;
  for (const auto& cause : told["causes"]) {
    sum += cause["charged_ms"].get<double>();
    for (const auto& line : cause["lines"]) functions[line["site"]["function"]] += line["ms"].get<double>();
  }
  EXPECT_NEAR(sum, mean, 1e-9) << "the parts of a step are the step";
  const auto most = std::ranges::max_element(functions, {}, [](const auto& entry) { return entry.second; });
  ASSERT_NE(most, functions.end());
  EXPECT_EQ(most->first, "prepare") << "four milliseconds of sleep, charged to their line";
}

TEST_F(TrainingTest, LossesAreTheSameToTheBit) {
  const auto program = script();
  const auto alone = run({python_, program});
  const auto under = watch(program, {"-q"});
  ASSERT_FALSE(printed(alone, "loss").empty()) << alone.err;
  EXPECT_EQ(printed(alone, "loss"), printed(under, "loss"));
  EXPECT_EQ(under.err, alone.err);
}

TEST_F(TrainingTest, FixesOfAPlanAreInForceAndTold) {
  const auto plan = folder_.write(
      "plan.yaml", "version: 1\nfixes:\n  - {id: loader-workers, count: 2}\n  - {id: threads, count: 2}\n");
  const auto alone = run({python_, script()});
  const auto under = watch(script(), {"--fix", plan});
  EXPECT_EQ(printed(alone, "loss"), printed(under, "loss")) << "workers keep the order of the samples";
  const auto told = report();
  ASSERT_EQ(told["fixes"].size(), 2U) << under.err;
  EXPECT_EQ(told["fixes"][0]["id"], "threads");
  EXPECT_EQ(told["fixes"][0]["state"], "in-force");
  EXPECT_EQ(told["fixes"][0]["overrode"][0], "set_num_threads(1) (train.py:4)");
  EXPECT_EQ(told["fixes"][1]["text"], "num_workers=2, prefetch_factor=2");
  EXPECT_TRUE(contains(under.err, "Fixes of the plan"));
}

TEST_F(TrainingTest, APlanWithAMistakeRunsNothing) {
  const auto plan = folder_.write("plan.yaml", "version: 1\nfixes:\n  - id: bf61\n");
  const auto result = watch(script("open('ran', 'w')"), {"--fix", plan});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_TRUE(contains(result.err, "line 3: unknown fix 'bf61'; did you mean 'bf16'?")) << result.err;
  EXPECT_TRUE(result.out.empty());
}

TEST_F(TrainingTest, AnExceptionKeepsItsTracebackAndItsExitCode) {
  const auto result = watch(script("assert step < 40, 'the data is broken'"));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(contains(result.err, "AssertionError: the data is broken"));
  EXPECT_FALSE(contains(result.err, "fullwatt/agent")) << "no frame of ours in the user's traceback";
  EXPECT_EQ(report()["steps"], 40);
}

TEST_F(TrainingTest, AKilledTrainingIsStillExplained) {
  const auto result = watch(script("step == 45 and os.kill(os.getpid(), 9)"));
  EXPECT_EQ(result.exit_code, 128 + SIGKILL);
  EXPECT_EQ(report()["steps"], 45);
  EXPECT_FALSE(report()["causes"].empty());
}

TEST_F(TrainingTest, AHangIsReportedWithStacksAndNotEnded) {
  const auto result = watch(script("step == 50 and time.sleep(14)"));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(printed(result, "steps"), "60") << "the training went on by itself";
  const auto hang = report()["run"]["hang"];
  ASSERT_TRUE(hang.is_string()) << report()["run"].dump(1);
  const auto stacks = read_all(hang.get<std::string>());
  EXPECT_TRUE(contains(stacks, "happens")) << stacks;
  EXPECT_TRUE(contains(stacks, "train.py")) << stacks;
}

TEST_F(TrainingTest, AForkedChildThatTrainsIsNotMixedUpWithItsParent) {
  const auto result = watch(script("step == 30 and os.fork() == 0 and (optimizer.step(), os._exit(3))"));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(report()["steps"], 60);
}

TEST_F(TrainingTest, StandardErrorMayBeClosed) {
  const auto result =
      shell(std::string("exec '") + FULLWATT_PROGRAM + "' run -- '" + python_ + "' '" + script() + "' 2>&-");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(printed(result, "steps"), "60");
  EXPECT_EQ(report()["steps"], 60);
}

TEST_F(TrainingTest, AFullDiskCostsTheReportAndNotTheTraining) {
  if (shell("unshare -rm true").exit_code != 0) GTEST_SKIP() << "skipped: no namespaces to mount a small disk in";
  const auto result = shell("exec unshare -rm sh -c 'mount -t tmpfs -o size=200k none " + home_.path() + " && exec " +
                            FULLWATT_PROGRAM + " run -- " + python_ + " " + script() + "'");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(printed(result, "steps"), "60");
  EXPECT_TRUE(contains(result.err, "No space left")) << result.err;
}

TEST_F(TrainingTest, ItEndsAfterTheStepsThatWereAskedFor) {
  const auto result = watch(script(), {"--steps", "25"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(report()["steps"], 25);
}

TEST_F(TrainingTest, AnInterruptReachesTheTrainingAndIsExplained) {
  const auto program = script("step == 40 and open(sys.argv[0] + '.ready', 'w').close() or time.sleep(0.05)");
  const int child = ::fork();
  if (child == 0) {
    for (const auto& [name, value] : environment_) ::setenv(name.c_str(), value.c_str(), 1);
    ::setpgid(0, 0);
    ::execl(FULLWATT_PROGRAM, FULLWATT_PROGRAM, "run", "-q", "--", python_.c_str(), program.c_str(), nullptr);
    ::_exit(127);
  }
  for (int i = 0; i < 2400 && !fs::exists(program + ".ready"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ::kill(-child, SIGINT);  // as a terminal does at Ctrl-C
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : 0, 128 + SIGINT);
  EXPECT_GE(report()["steps"].get<int>(), 40);
  EXPECT_TRUE(report()["run"]["interrupted"].get<bool>());
}

TEST_F(TrainingTest, ASpoolCutInHalfIsToldAndWhatIsThereIsShown) {
  ASSERT_EQ(watch(script(), {"-q"}).exit_code, 0);
  for (const auto& file : fs::directory_iterator(newest())) {
    if (file.path().extension() == ".fw") fs::resize_file(file.path(), fs::file_size(file.path()) / 2);
  }
  const auto result = run({FULLWATT_PROGRAM, "report"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(contains(result.out, "cut")) << result.out;
}

}  // namespace
}  // namespace fullwatt::tests
