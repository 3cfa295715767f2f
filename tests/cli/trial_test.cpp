// Trials never harm: what a program writes stays in the trial, and nothing that it started outlives it.

#include <chrono>
#include <filesystem>

#include "tests/support/temp_folder.hpp"
#include <gtest/gtest.h>
#include <unistd.h>

#include "fullwatt/base/process.hpp"
#include "fullwatt/base/text.hpp"

namespace fullwatt::tests {
namespace {

namespace fs = std::filesystem;
using base::ChildResult;

class TrialTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto tried = trial("true"); tried.exit_code != 0)
      GTEST_SKIP() << "no sandbox on this machine: " << tried.err;
  }

  /// Runs a line of shell as a trial in the user's folder.
  ChildResult trial(const std::string& line, int limit_ms = 20000) {
    fs::create_directories(folder_ / "mine");
    fs::create_directories(folder_ / "run");
    fs::create_directories(folder_ / "compiled");
    fs::remove_all(folder_ / "scratch");
    fs::create_directories(folder_ / "scratch");
    base::ChildOptions options;
    const auto inside = "cd '" + (folder_ / "mine") + "' && " + line;
    options.argv = {FULLWATT_PROGRAM,
                    "__trial",
                    folder_ / "scratch",
                    std::to_string(limit_ms),
                    folder_ / "run",
                    folder_ / "compiled",
                    "--",
                    "/bin/sh",
                    "-c",
                    inside};
    options.environment = base::current_environment();
    if (fenced_) options.environment["FULLWATT_SANDBOX"] = "fence";
    options.limit = std::chrono::milliseconds(60000);
    return base::run_child(options).value_or(ChildResult{});
  }

  void expect_nothing_written() const {
    for (const auto* name : {"at_exit", "by_child", "by_c", "in_finally"})
      EXPECT_FALSE(fs::exists(folder_ / ("mine/" + std::string(name)))) << name;
    EXPECT_FALSE(fs::exists("/tmp/fullwatt_trial_test"));
    EXPECT_FALSE(fs::exists(fs::path(base::current_environment()["HOME"]) / ".fullwatt_trial_test"));
  }

  /// Whether a process lives whose command line holds this word.
  static bool lives(const std::string& word) {
    for (const auto& entry : fs::directory_iterator("/proc")) {
      if (!base::number<int>(entry.path().filename().string())) continue;
      try {
        if (base::contains(read_all((entry.path() / "cmdline").string()), word)) return true;
      } catch (const std::exception&) {
        continue;  // it has just gone
      }
    }
    return false;
  }

  TempFolder folder_;
  bool fenced_ = false;
};

/// The way where no view of the file system can be built: writing is forbidden.
class FencedTrialTest : public TrialTest {
 protected:
  FencedTrialTest() { fenced_ = true; }
};

constexpr std::string_view kWriters =
    "import atexit, os, subprocess, sys\n"
    "def write(path):\n"
    "    try:\n"
    "        open(os.path.expanduser(path), 'w').write('x')\n"
    "    except PermissionError:\n"
    "        print('forbidden', path)\n"
    "atexit.register(write, 'at_exit')\n"
    "try:\n"
    "    subprocess.run([sys.executable, '-c', \"open('by_child', 'w').write('x')\"])\n"
    "    os.system('echo x > by_c')\n"
    "    write('~/.fullwatt_trial_test')\n"
    "    write('/tmp/fullwatt_trial_test')\n"
    "    raise SystemExit(5)\n"
    "finally:\n"
    "    write('in_finally')\n";

TEST_F(TrialTest, WritingChangesNothingAndIsSeenInside) {
  folder_.write("mine/model.pt", "old");
  folder_.write("mine/gone.txt", "still here");
  const auto result =
      trial("echo new > model.pt && rm gone.txt && mkdir logs && echo 1 > logs/a && cat model.pt && ls");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "new\nlogs\nmodel.pt\n");
  EXPECT_EQ(read_all(folder_ / "mine/model.pt"), "old");
  EXPECT_TRUE(fs::exists(folder_ / "mine/gone.txt"));
  EXPECT_FALSE(fs::exists(folder_ / "mine/logs"));
}

TEST_F(TrialTest, WritersOfEveryKindStayInside) {
  folder_.write("mine/train.py", std::string(kWriters));
  const auto result = trial("python3 train.py");
  EXPECT_EQ(result.exit_code, 5) << result.err;
  EXPECT_FALSE(base::contains(result.out, "forbidden")) << result.out;
  expect_nothing_written();
}

TEST_F(FencedTrialTest, WritersOfEveryKindAreForbidden) {
  folder_.write("mine/train.py", std::string(kWriters));
  folder_.write("mine/by_c.old", "mine");
  const auto result = trial("python3 train.py; code=$?; rm by_c.old; mv by_c.old by_c; exit $code");
  EXPECT_EQ(result.exit_code, 5) << result.err;
  EXPECT_EQ(result.out,
            "forbidden ~/.fullwatt_trial_test\nforbidden /tmp/fullwatt_trial_test\nforbidden in_finally\nforbidden "
            "at_exit\n");
  EXPECT_EQ(read_all(folder_ / "mine/by_c.old"), "mine");
  expect_nothing_written();
}

TEST_F(FencedTrialTest, RunFolderDevicesAndTemporaryFilesAreOpen) {
  const auto result = trial("echo kept > ../run/facts && echo x > /dev/null && echo 1 > $TMPDIR/a && cat $TMPDIR/a");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "1\n");
  EXPECT_EQ(read_all(folder_ / "run/facts"), "kept\n");
  ::setenv("TRITON_CACHE_DIR", (folder_ / "compiled/triton").c_str(), 1);
  EXPECT_EQ(trial("printf %s $TRITON_CACHE_DIR").out, folder_ / "compiled/triton");
  ::setenv("TRITON_CACHE_DIR", (folder_ / "mine/triton").c_str(), 1);
  EXPECT_EQ(trial("printf %s $TRITON_CACHE_DIR").out, folder_ / "scratch/triton") << "there nothing may be written";
  ::unsetenv("TRITON_CACHE_DIR");
}

TEST_F(TrialTest, TheRunFolderIsWrittenForReal) {
  EXPECT_EQ(trial("echo kept > ../run/facts && echo code > ../compiled/kernel").exit_code, 0);
  EXPECT_EQ(read_all(folder_ / "compiled/kernel"), "code\n");
  EXPECT_EQ(read_all(folder_ / "run/facts"), "kept\n");
}

TEST_F(TrialTest, NothingOutlivesIt) {
  const auto word = "fullwatt_trial_" + std::to_string(::getpid());
  const auto result = trial("setsid sh -c 'trap \"\" TERM INT HUP; sleep 600; : " + word +
                            "' & sh -c 'sleep 600; : " + word + "' & exit 3");
  EXPECT_EQ(result.exit_code, 3) << result.err;
  EXPECT_FALSE(lives(word));
}

TEST_F(TrialTest, AProgramThatIgnoresSignalsEndsAtTheLimit) {
  const auto word = "fullwatt_limit_" + std::to_string(::getpid());
  const auto result = trial("trap '' TERM INT HUP; while true; do sleep 600; : " + word + "; done", 500);
  EXPECT_EQ(result.exit_code, 124) << result.err;
  EXPECT_LT(result.seconds, 30);
  EXPECT_FALSE(lives(word));
}

TEST_F(TrialTest, APathWithBlanksAndCommasIsNoTrouble) {
  fs::create_directories(folder_ / "mine/my, data: all");
  EXPECT_EQ(trial("cd 'my, data: all' && echo 1 > x && cat x").out, "1\n");
  EXPECT_FALSE(fs::exists(folder_ / "mine/my, data: all/x"));
}

}  // namespace
}  // namespace fullwatt::tests
