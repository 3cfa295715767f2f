// `fullwatt tune` on a small training of real PyTorch: the plan it writes, the proof, and that nothing else is written.

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <iterator>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>

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

/// Some steps of some milliseconds, with a fix of each class to try: a fused Adam, and another order of pixels.
constexpr std::string_view kShort = R"(import json, os, time, torch
from torch import nn
import parts
torch.set_num_threads(1)
here = os.path.dirname(os.path.abspath(__file__))
model = nn.Sequential(nn.Conv2d(1, parts.channels, 3), nn.Flatten(), nn.Linear(36 * parts.channels, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=json.load(open(here + "/settings.json"))["lr"])
for step in range(60):
    optimizer.zero_grad()
    model(torch.randn(4, 1, 8, 8)).mean().backward()
    optimizer.step()
    time.sleep(0.005)
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
  /// With its parts and settings; `more` stands in its loop.
  std::string write_short(const std::string& more = "pass") const {
    folder_.write("parts.py", "channels = 2\n");
    folder_.write("settings.json", R"({"lr": 0.01})");
    return folder_.write("train.py", std::string(kShort) + "    " + more + "\n");
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
  std::vector<std::string> command(const std::string& program, const std::vector<std::string>& options) const {
    auto asked = command(program);
    asked.insert(asked.begin() + 2, options.begin(), options.end());
    return asked;
  }
  /// Starts it and sends it a signal as soon as so many trials are over; gives how it ended, or nothing when that was
  /// before. What it told by then is in `told()`.
  std::optional<int> cut_off(const std::string& program, int trials, int signal,
                             const std::vector<std::string>& options = {}) const {
    const int child = ::fork();
    if (child == 0) {
      auto argv = command(program, options);
      std::vector<char*> words;
      for (auto& word : argv) words.push_back(word.data());
      words.push_back(nullptr);
      for (const auto& [name, value] : environment_) ::setenv(name.c_str(), value.c_str(), 1);
      ::dup2(::open((home_ / "told").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
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
  std::string told() const { return read_all(home_ / "told"); }
  /// With more options.
  base::ChildResult tune(const std::string& program, const std::vector<std::string>& options) const {
    return run(command(program, options));
  }
  /// Such as inside a chroot.
  static bool no_sandbox(const base::ChildResult& result) { return contains(result.out, "Trials need"); }
};

/// Behind its slow samples it pays for a debugging aid, which can be mended in the source.
TEST_F(TuneTest, ASlowDataSetIsCachedAndProvedFasterAlsoWhenItWasCutOff) {
  const auto source = "import torch\ntorch.autograd.set_detect_anomaly(True)\n" + std::string(kTraining);
  const auto program = folder_.write("train.py", source);
  const bool is_cut = cut_off(program, 2, SIGKILL).has_value();
  std::thread child([&] { hold_lock(); });
  const auto result = tune(program, {"--write"});
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
    EXPECT_EQ(read_all(program), source);
    GTEST_SKIP() << "this machine was too uneven for a proof: " << result.out;
  }
  EXPECT_EQ(tuning["proved"], true) << result.out;
  EXPECT_TRUE(contains(read_all(folder_ / "plan.yaml"), "id: sample-cache")) << result.out << result.err;
  EXPECT_TRUE(contains(result.out, "the loss is not worse")) << result.out;
  EXPECT_TRUE(contains(result.err, program + " is changed; the original is " + program + ".orig")) << result.err;
  EXPECT_EQ(read_all(program + ".orig"), source);
  const auto written = read_all(program);
  EXPECT_TRUE(contains(written, "set_detect_anomaly(False)")) << written;
  const auto again = tune(program, {"--write", "--no-proof", "--minutes", "0.01"});
  EXPECT_TRUE(contains(again.err, "the source is left alone: there is no plan that is proved")) << again.err;
  EXPECT_EQ(read_all(program), written);
  EXPECT_EQ(read_all(program + ".orig"), source);
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

/// As a batch system does when the time of a job is up.
TEST_F(TuneTest, ASignalToEndIsAnInterrupt) {
  const auto program = write_short();
  const auto ended = cut_off(program, 1, SIGTERM);
  ASSERT_TRUE(ended);
  EXPECT_TRUE(WIFEXITED(*ended)) << "ended by signal " << WTERMSIG(*ended);
  EXPECT_FALSE(record::list_runs(home_ / "tunes").empty());
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
  const auto refused = tune(program, {});
  EXPECT_EQ(refused.exit_code, 3) << refused.err;
  EXPECT_TRUE(contains(refused.err, "with --allow batch it is tried in parts")) << refused.err;
  const auto allowed = tune(program, {"--allow", "batch", "--minutes", "0.01", "--keep"});
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

/// Both are tried otherwise: WithoutNamespacesWhatPythonWritesIsKeptApart.
TEST_F(TuneTest, WhatIsNotExactOrNotWantedIsNotTried) {
  cut_off(write_short(), 2, SIGINT, {"--exact", "--skip", "fused-optimizer", "--no-proof", "--keep"});
  if (record::list_runs(home_ / "tunes").empty()) GTEST_SKIP() << "no sandbox";
  EXPECT_TRUE(contains(told(), "a step takes")) << told();
  EXPECT_FALSE(contains(told(), "channels-last")) << told();
  EXPECT_FALSE(contains(told(), "fused-optimizer")) << told();
  const auto look = fs::path(home_ / "tunes") / record::list_runs(home_ / "tunes").front() / "2/run";
  const auto explained = run({FULLWATT_PROGRAM, "report", "--json", look.string()});
  ASSERT_EQ(explained.exit_code, 0) << explained.err;
  const auto uses = model::Json::parse(explained.out)["resources"];
  const auto cpu = std::ranges::find_if(uses, [](const auto& use) { return use["id"] == "cpu"; });
  ASSERT_NE(cpu, uses.end()) << uses.dump();
  EXPECT_TRUE((*cpu)["limit"].is_number()) << "a look knows the machine: how many workers a loader may have";
}

/// To learn what a step takes without a loader, its first look gives batches a second time.
TEST_F(TuneTest, AProgramThatRefusesABatchTwiceIsLookedAtWithoutThat) {
  const auto program = folder_.write("train.py", R"(import time, torch
from torch import nn
torch.set_num_threads(1)
data = torch.utils.data.TensorDataset(torch.randn(100000, 4), torch.arange(100000))
model = nn.Linear(4, 1)
optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01)
last = -1
for x, number in torch.utils.data.DataLoader(data, batch_size=4):
    assert int(number[0]) > last, "the same again"
    last = int(number[-1])
    optimizer.zero_grad()
    model(x).mean().backward()
    optimizer.step()
    time.sleep(0.02)
)");
  const auto ended = cut_off(program, 3, SIGINT, {"--no-proof"});
  if (record::list_runs(home_ / "tunes").empty()) GTEST_SKIP() << "no sandbox";
  EXPECT_TRUE(ended) << "there was no other look";
  EXPECT_TRUE(contains(told(), "a step takes")) << told();
}

TEST_F(TuneTest, WhatWasCutOffDoesNotGoOnWithAnotherProgram) {
  const auto program = write_short();
  for (const auto& [name, text] :
       {std::pair("parts.py", "channels = 4\n"), std::pair("settings.json", R"({"lr": 0.5})")}) {
    ASSERT_TRUE(cut_off(program, 1, SIGKILL));
    if (record::list_runs(home_ / "tunes").empty()) GTEST_SKIP() << "no sandbox";
    const auto file = folder_.write(name, text);
    const auto result = tune(program, {"--no-proof", "--minutes", "0.0001"});
    EXPECT_EQ(result.exit_code, 3) << "there is no time to look at it: " << result.err;
    EXPECT_TRUE(contains(result.out, "--minutes gives more")) << result.out;
    EXPECT_TRUE(contains(result.err, "begins again: " + file + " has changed")) << result.err;
    EXPECT_FALSE(contains(result.err, "goes on")) << result.err;
  }
}

TEST_F(TuneTest, WithoutNamespacesAProgramThatWritesByItselfIsEnded) {
  environment_["FULLWATT_SANDBOX"] = "fence";
  const auto result = run(command(folder_.write("train.py",
                                                "import os, sqlite3\n"
                                                "os.chdir(os.path.dirname(__file__))\n"
                                                "open('by_python', 'w').write('x')\n"
                                                "try:\n"
                                                "    sqlite3.connect('metrics').execute('create table t(x)')\n"
                                                "finally:\n"
                                                "    print('goes on')\n")));
  if (no_sandbox(result)) GTEST_SKIP() << result.out;
  EXPECT_EQ(result.exit_code, 3) << result.err;
  EXPECT_TRUE(contains(result.out, "about to write " + (folder_ / "metrics"))) << result.out;
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), {}), 1) << "but for train.py";
}

TEST_F(TuneTest, WithoutNamespacesWhatPythonWritesIsKeptApart) {
  environment_["FULLWATT_SANDBOX"] = "fence";
  const auto program =
      write_short("open(here + '/checkpoint.pt', 'w').write('x'); torch.save(model, here + '/model.pt')");
  const auto ended = cut_off(program, 2, SIGINT, {"--no-proof"});
  if (record::list_runs(home_ / "tunes").empty()) GTEST_SKIP() << "no sandbox";
  ASSERT_TRUE(ended) << told();
  EXPECT_TRUE(WIFEXITED(*ended) && WEXITSTATUS(*ended) == 0) << told();
  EXPECT_TRUE(contains(told(), "  channels-last ") && contains(told(), "  fused-optimizer ")) << told();
  EXPECT_FALSE(fs::exists(folder_ / "checkpoint.pt") || fs::exists(folder_ / "model.pt"));
}

TEST_F(TuneTest, APlanForSomethingElseIsRefusedAndAnotherScriptIsTold) {
  const auto program = write_short("print('threads', torch.get_num_threads()) if step == 50 else None");
  // The others are the agent's tests.
  const std::tuple<std::string, std::string, std::string> made_for[] = {
      {"model: Net-00000000", "the plan is refused: it was made for the model Net-00000000, and this is Sequential-",
       "1"},
      {"script: '00000000'", "the script has changed since the plan was made", "2"}};
  for (const auto& [entry, word, threads] : made_for) {
    const auto plan =
        folder_.write("plan.yaml", "version: 1\nmade_for: {" + entry + "}\nfixes:\n  - {id: threads, count: 2}\n");
    const auto result = watched({python_, program}, {"--fix", plan});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_TRUE(contains(result.err, word)) << result.err;
    EXPECT_EQ(printed(result, "threads"), threads) << entry;
  }
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
