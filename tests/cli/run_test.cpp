// `fullwatt run` with commands that have nothing to do with Python: the program must not notice that it is watched.

#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>

#include "tests/support/temp_folder.hpp"
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fullwatt/base/process.hpp"
#include "fullwatt/base/text.hpp"
#include "fullwatt/model/json.hpp"
#include "fullwatt/record/run_folder.hpp"

namespace fullwatt::tests {
namespace {

namespace fs = std::filesystem;
using base::ChildResult;
using base::contains;
using base::Environment;

class RunTest : public testing::Test {
 protected:
  ChildResult fullwatt(std::vector<std::string> arguments, const Environment& more = {}) const {
    base::ChildOptions options;
    arguments.insert(arguments.begin(), FULLWATT_PROGRAM);
    options.argv = std::move(arguments);
    options.environment = environment();
    for (const auto& [name, value] : more) options.environment[name] = value;
    options.limit = std::chrono::minutes(2);
    auto result = base::run_child(options);
    EXPECT_TRUE(result);
    EXPECT_FALSE(result->timed_out);
    return result.value_or(ChildResult{.exit_code = -1});
  }
  Environment environment() const {
    return {{"PATH", "/usr/bin:/bin"}, {"LANG", "C.UTF-8"}, {"FULLWATT_HOME", home_.path()}};
  }
  std::vector<std::string> runs() const { return record::list_runs(home_ / "runs"); }
  model::RunInfo newest() const {
    const auto info = record::read_info(home_ / ("runs/" + runs().front()));
    EXPECT_TRUE(info) << (info ? "" : info.error().message);
    return info.value_or(model::RunInfo{});
  }

  TempFolder home_;
};

TEST_F(RunTest, ExitCodeAndOutputAreTheProgramsOwn) {
  const auto result = fullwatt({"run", "-q", "--", "sh", "-c", "printf 'out\\n'; printf 'err\\n' >&2; exit 7"});
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_EQ(result.out, "out\n");
  EXPECT_EQ(result.err, "err\n");
  EXPECT_EQ(newest().exit_code, 7);
}

TEST_F(RunTest, WithoutTheTwoDashesTheCommandIsTakenAsTyped) {
  const auto result = fullwatt({"run", "-q", "sh", "-c", "echo \"$0 $1\"", "--steps", "-v"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "--steps -v\n");
}

TEST_F(RunTest, AProgramThatDiesOfASignalIsReportedAsAShellDoes) {
  const auto result = fullwatt({"run", "-q", "--", "sh", "-c", "kill -TERM $$"});
  EXPECT_EQ(result.exit_code, 128 + SIGTERM);
  EXPECT_EQ(newest().signal, SIGTERM);
}

TEST_F(RunTest, ARunWithoutStepsSaysSo) {
  const auto result = fullwatt({"run", "--", "true"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "");
  EXPECT_TRUE(contains(base::lower(result.err), "no training step")) << result.err;
  EXPECT_TRUE(contains(fullwatt({"run", "--steps", "3", "--", "true"}).err, "--steps ended nothing"));
}

TEST_F(RunTest, WrongCommandsGetAClearWord) {
  const auto nothing = fullwatt({"run"});
  EXPECT_EQ(nothing.exit_code, 2);
  EXPECT_TRUE(contains(nothing.err, "fullwatt run -- python train.py"));
  const auto unknown = fullwatt({"run", "--", "no-such-program"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_TRUE(contains(unknown.err, "no-such-program"));
  EXPECT_TRUE(runs().empty()) << "nothing is left of a run that never began";
  EXPECT_EQ(fullwatt({"run", "--steps", "0", "--", "true"}).exit_code, 2);
}

TEST_F(RunTest, SignalsThatReachOnlyUsArePassedOn) {
  const int child = ::fork();
  if (child == 0) {
    for (const auto& [name, value] : environment()) ::setenv(name.c_str(), value.c_str(), 1);
    ::execl(FULLWATT_PROGRAM, FULLWATT_PROGRAM, "run", "-q", "--", "sh", "-c",
            "trap 'exit 42' USR1; touch \"$FULLWATT_HOME/ready\"; while :; do sleep 0.05; done", nullptr);
    ::_exit(127);
  }
  for (int i = 0; i < 600 && !fs::exists(home_ / "ready"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ::kill(child, SIGUSR1);
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 42);
}

TEST_F(RunTest, TwoRunsAtOnceHaveTheirOwnFolders) {
  ChildResult first;
  std::thread other([&] { first = fullwatt({"run", "-q", "--", "sh", "-c", "echo $FULLWATT_RUN; sleep 1"}); });
  const auto second = fullwatt({"run", "-q", "--", "sh", "-c", "echo $FULLWATT_RUN; sleep 1"});
  other.join();
  EXPECT_NE(first.out, second.out);
  EXPECT_EQ(runs().size(), 2U);
}

TEST_F(RunTest, RunsAreListedAndShownAgain) {
  fullwatt({"run", "-q", "--", "echo", "hello"});
  const auto list = fullwatt({"report", "--list"});
  EXPECT_EQ(list.exit_code, 0);
  EXPECT_TRUE(contains(list.out, "echo hello")) << list.out;
  EXPECT_EQ(fullwatt({"report"}).exit_code, 0);
  const auto json = model::Json::parse(fullwatt({"report", runs().front(), "--json"}).out, nullptr, false);
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["run"]["command"][1], "hello");
  const auto missing = fullwatt({"report", "no-such-run"});
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_TRUE(contains(missing.err, "--list"));
}

TEST_F(RunTest, OldRunsMakeRoom) {
  for (std::size_t i = 0; i < record::kMostRuns + 5; ++i)
    fs::create_directories(home_ / ("runs/19990101-0000" + std::to_string(10 + i)));
  fullwatt({"run", "-q", "--", "true"});
  EXPECT_EQ(runs().size(), record::kMostRuns);
  EXPECT_FALSE(runs().front().starts_with("1999"));
}

TEST_F(RunTest, ARunFolderOfAnotherVersionOrHalfAFileIsRefused) {
  home_.write("runs/x/run.json", "{\"schema\": 99}");
  const auto other = fullwatt({"report", "x"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_TRUE(contains(other.err, "schema 99"));
  home_.write("runs/x/run.json", "{\"sche");
  EXPECT_EQ(fullwatt({"report", "x"}).exit_code, 2);
}

TEST_F(RunTest, ABrokenSpoolIsToldAndTheRestIsShown) {
  fullwatt({"run", "-q", "--", "true"});
  home_.write("runs/" + runs().front() + "/spool-5.fw", "half");
  const auto result = fullwatt({"report", "-v"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(contains(result.out, "spool-5.fw")) << result.out;
}

TEST_F(RunTest, AUsersOwnInjectionLibraryIsNotReplaced) {
  const auto result = fullwatt({"run", "-q", "--", "sh", "-c", "echo $CUDA_INJECTION64_PATH"},
                               {{"CUDA_INJECTION64_PATH", "/their/own.so"}});
  EXPECT_EQ(result.out, "/their/own.so\n");
}

}  // namespace
}  // namespace fullwatt::tests
