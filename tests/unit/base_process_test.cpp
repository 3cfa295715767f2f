#include <csignal>
#include <filesystem>

#include "tests/support/temp_folder.hpp"
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fullwatt/base/process.hpp"
#include "fullwatt/base/text.hpp"

namespace fullwatt::base {
namespace {

using tests::TempFolder;

/// Far beyond what any machine needs: only tests of the limit itself come near one.
constexpr std::chrono::milliseconds kLong{60'000};

ChildOptions shell(const std::string& script) {
  ChildOptions options;
  options.argv = {"/bin/sh", "-c", script};
  options.environment = {{"PATH", "/usr/bin:/bin"}};
  options.limit = kLong;
  return options;
}

ChildResult run(const ChildOptions& options) {
  auto result = run_child(options);
  EXPECT_TRUE(result) << (result ? "" : result.error().message);
  return result.value_or(ChildResult{});
}

TEST(RunChildTest, BothStreamsAndTheExitCodeComeBack) {
  const auto result = run(shell("echo out; echo err >&2; exit 7"));
  EXPECT_EQ(result.out, "out\n");
  EXPECT_EQ(result.err, "err\n");
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_EQ(result.signal, 0);
  EXPECT_FALSE(result.timed_out);
  EXPECT_FALSE(result.ok());
}

TEST(RunChildTest, ExitZeroIsOk) {
  EXPECT_TRUE(run(shell("exit 0")).ok());
}

TEST(RunChildTest, ASignalThatEndsItIsNamed) {
  const auto result = run(shell("kill -ABRT $$"));
  EXPECT_EQ(result.signal, SIGABRT);
  EXPECT_FALSE(result.timed_out);
  EXPECT_FALSE(result.ok());
}

TEST(RunChildTest, OneThatNobodyWantsAnyMoreIsToldToEnd) {
  int asked = 0;
  auto options = shell("trap 'echo over > /dev/null; exit 3' TERM; while :; do sleep 0.05; done");
  options.is_over = [&] { return ++asked > 2; };
  const auto result = run(options);
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_FALSE(result.timed_out);
}

TEST(RunChildTest, AProgramThatIsMissingIsAnError) {
  auto options = shell("");
  options.argv = {"fullwatt-no-such-program"};
  const auto by_path = run_child(options);
  ASSERT_FALSE(by_path);
  EXPECT_EQ(by_path.error().kind, Error::Kind::not_found);
  EXPECT_TRUE(contains(by_path.error().message, "fullwatt-no-such-program"));
  options.argv = {"/nowhere/fullwatt"};
  EXPECT_FALSE(run_child(options));
  options.argv = {};
  EXPECT_FALSE(run_child(options));
}

TEST(RunChildTest, AFileThatIsNoProgramEndsWithTheShellsCode) {
  const TempFolder folder;
  const auto file = folder.write("broken",
                                 "\x7f"
                                 "ELF nonsense");
  ASSERT_EQ(::chmod(file.c_str(), 0700), 0);
  auto options = shell("");
  options.argv = {file};
  EXPECT_EQ(run(options).exit_code, 127);
}

TEST(RunChildTest, StandardInputIsEmpty) {
  EXPECT_EQ(run(shell("cat; echo end")).out, "end\n");
}

TEST(RunChildTest, TheChildSeesExactlyTheGivenEnvironment) {
  ::setenv("FULLWATT_TEST_LEAK", "1", 1);
  auto options = shell("echo \"$FULLWATT_TEST_GIVEN-$FULLWATT_TEST_LEAK\"");
  options.environment["FULLWATT_TEST_GIVEN"] = "a b\n=c";
  EXPECT_EQ(run(options).out, "a b\n=c-\n");
  ::unsetenv("FULLWATT_TEST_LEAK");
}

TEST(RunChildTest, OutputBeyondTheBoundIsReadAndDropped) {
  auto options = shell(
      "i=0; while [ $i -lt 2000 ]; do echo 0123456789012345678901234567890123456789; i=$((i+1)); done; echo last >&2");
  options.output_limit = 100;
  const auto result = run(options);
  EXPECT_EQ(result.out.size(), 100U);
  EXPECT_EQ(result.err, "last\n");
  EXPECT_TRUE(result.ok());
}

TEST(RunChildTest, AChildBeyondItsLimitIsKilled) {
  auto options = shell("echo before; exec sleep 1000");
  options.limit = std::chrono::milliseconds(200);
  const auto result = run(options);
  EXPECT_TRUE(result.timed_out);
  EXPECT_FALSE(result.ok());
}

TEST(RunChildTest, AChildThatClosesItsOutputIsStillBounded) {
  auto options = shell("exec >&- 2>&-; exec sleep 1000");
  options.limit = std::chrono::milliseconds(200);
  EXPECT_TRUE(run(options).timed_out);
}

/// The grandchild holds the writing end of a FIFO: its reader is told when the last such process has gone.
TEST(RunChildTest, WhatTheChildStartedIsKilledWithIt) {
  const TempFolder folder;
  const auto fifo = folder / "alive";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const int reader = ::open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  const int keep = ::open(fifo.c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_GE(keep, 0);

  auto options = shell("sleep 1000 9>'" + fifo + "' & echo started; wait");
  options.limit = std::chrono::milliseconds(1000);
  EXPECT_TRUE(run(options).timed_out);

  ::close(keep);
  pollfd end{reader, POLLIN, 0};
  EXPECT_EQ(::poll(&end, 1, static_cast<int>(kLong.count())), 1) << "the grandchild lives on";
  EXPECT_NE(end.revents & POLLHUP, 0);
  ::close(reader);
}

TEST(RunChildTest, ADaemonThatKeepsThePipeOpenCannotHoldTheCaller) {
  auto options = shell("sleep 1000 & exit 0");
  options.limit = std::chrono::milliseconds(300);
  EXPECT_TRUE(run(options).timed_out);
}

TEST(FindInPathTest, TheFirstFolderThatHasTheProgramWins) {
  const TempFolder folder;
  for (const std::string name : {"a/tool", "b/tool"}) {
    ASSERT_EQ(::chmod(folder.write(name, "#!/bin/sh\n").c_str(), 0700), 0);
  }
  folder.write("c/plain", "not executable");
  const auto path = folder / "none" + ":" + folder / "a" + ":" + folder / "b" + ":" + folder / "c";
  EXPECT_EQ(find_in_path("tool", {{"PATH", path}}), folder / "a/tool");
  EXPECT_EQ(find_in_path("missing", {{"PATH", path}}), "");
  EXPECT_EQ(find_in_path("tool", {}), "");
  EXPECT_EQ(find_in_path(folder / "b/tool", {}), folder / "b/tool");
}

TEST(EnvironmentTest, ABlockOfTheKernelIsReadEntryByEntry) {
  using namespace std::string_literals;
  const auto block = "A=1\0B=x=y\0broken\0=nameless\0C=\0"s;
  EXPECT_EQ(parse_environment(block), (Environment{{"A", "1"}, {"B", "x=y"}, {"C", ""}}));
  EXPECT_EQ(parse_environment(""), Environment{});
}

TEST(EnvironmentTest, OwnVariablesAreAmongTheCurrentOnes) {
  ::setenv("FULLWATT_TEST_OWN", "here", 1);
  EXPECT_EQ(current_environment().at("FULLWATT_TEST_OWN"), "here");
  ::unsetenv("FULLWATT_TEST_OWN");
}

TEST(OwnExecutableTest, ItIsThisTest) {
  EXPECT_EQ(file_name(own_executable()), "base_process_test");
}

}  // namespace
}  // namespace fullwatt::base
