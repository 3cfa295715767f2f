// Trials never harm: what a program writes stays in the trial, and nothing that it started outlives it.

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iterator>

#include "tests/support/temp_folder.hpp"
#include <gtest/gtest.h>
#include <unistd.h>

#include "fullwatt/base/process.hpp"
#include "fullwatt/base/text.hpp"

namespace fullwatt::tests {
namespace {

namespace fs = std::filesystem;
using base::ChildResult;
using base::contains;

class TrialTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto tried = trial("test -z \"$FULLWATT_DIVERSION\"");
    if (tried.exit_code != (fenced_ ? 1 : 0)) GTEST_SKIP() << "not to be had on this machine: " << tried.err;
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

  /// Whether a process lives whose command line holds this word.
  static bool lives(const std::string& word) {
    for (const auto& entry : fs::directory_iterator("/proc")) {
      if (!base::number<int>(entry.path().filename().string())) continue;
      try {
        if (contains(read_all((entry.path() / "cmdline").string()), word)) return true;
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

/// Ways to change files; each prints what it reads back.
struct Writer {
  std::string name;
  std::string line;
  std::string changes;
};

const Writer kWriters[] = {
    {"Shell", "echo x > new && cat new", "new"},
    {"AtExit",
     R"py(python3 -c "import atexit; atexit.register(lambda: print(open('new', 'w+').write('x') and open('new').read()))")py",
     "new"},
    {"Finally",
     R"py(python3 -c "
try:
    1 / 0
except ZeroDivisionError:
    pass
finally:
    open('new', 'w').write('x'); print(open('new').read())")py",
     "new"},
    {"ChildProcess",
     R"py(python3 -c "import os, subprocess, sys; subprocess.run(['sh', '-c', 'echo x > new']); print(open('new').read(), end='')")py",
     "new"},
    {"LibC", R"py(python3 -c "
import ctypes
c = ctypes.CDLL(None)
c.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(c.fopen(b'new', b'w'))
c.fputs(b'x', file), c.fclose(file)
print(open('new').read())")py",
     "new"},
    {"Sqlite", R"py(python3 -c "
import sqlite3
base = sqlite3.connect('new')
base.execute('create table t(x)'), base.execute('insert into t values (\'x\')'), base.commit()
print(base.execute('select x from t').fetchone()[0])")py",
     "new"},
    {"Append", "echo x >> old && tail -1 old", "old"},
    {"Remove", "rm -f old && test ! -e old && echo x", "old"},
    {"Move", "mv old new && test -e new && echo x", "old"},
    {"Folder", "mkdir new && test -d new && echo x", "new"},
    {"Link", "ln -s old new && test -h new && echo x", "new"},
    {"Mode", "chmod 600 old && echo x", "old"},
    {"Times", "touch -d 1999-01-01 old && echo x", "old"},
    {"OtherPlace", "echo x > \"$HOME/.fullwatt_trial_test\" && cat \"$HOME/.fullwatt_trial_test\"",
     ".fullwatt_trial_test"},
};

void PrintTo(const Writer& writer, std::ostream* stream) {
  *stream << writer.name;
}

class WriterTest : public TrialTest, public ::testing::WithParamInterface<Writer> {
 protected:
  void SetUp() override {
    TrialTest::SetUp();
    folder_.write("mine/old", "mine\n");
    before_ = fs::last_write_time(folder_ / "mine/old");
  }
  void TearDown() override {
    if (IsSkipped()) return;
    EXPECT_EQ(read_all(folder_ / "mine/old"), "mine\n");
    EXPECT_EQ(fs::last_write_time(folder_ / "mine/old"), before_);
    EXPECT_NE(fs::status(folder_ / "mine/old").permissions(), fs::perms::owner_read | fs::perms::owner_write);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "mine"), {}), 1);
    EXPECT_FALSE(fs::exists(fs::path(base::current_environment()["HOME"]) / ".fullwatt_trial_test"));
  }

 private:
  fs::file_time_type before_;
};

TEST_P(WriterTest, StaysInside) {
  const auto result = trial(GetParam().line);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "x\n");
}

class FencedWriterTest : public WriterTest {
 protected:
  FencedWriterTest() { fenced_ = true; }
};

/// Without a view of the file system it cannot go on, whatever it makes of an error.
TEST_P(FencedWriterTest, EndsTheTrial) {
  const auto result = trial("{ " + GetParam().line + "; } || true; echo went on");
  EXPECT_EQ(result.exit_code, 125) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_TRUE(contains(result.err, "it was about to write")) << result.err;
  EXPECT_TRUE(contains(result.err, "/" + GetParam().changes + " by other means")) << result.err;
}

std::string name_of(const ::testing::TestParamInfo<Writer>& writer) {
  return writer.param.name;
}
INSTANTIATE_TEST_SUITE_P(Each, WriterTest, ::testing::ValuesIn(kWriters), name_of);
INSTANTIATE_TEST_SUITE_P(Each, FencedWriterTest, ::testing::ValuesIn(kWriters), name_of);

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

TEST_F(FencedTrialTest, WhatFailsAnywayIsLeftToFail) {
  folder_.write("mine/old", "mine");
  const auto result =
      trial(R"(mkdir -p . ; rm nowhere; mv nowhere new; echo x > no/folder; set -C; echo x > old; cat old)");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "mine");
  EXPECT_FALSE(contains(result.err, "about to write")) << result.err;
}

TEST_F(FencedTrialTest, ADataBaseIsReadAndNotWritten) {
  const std::string make = "import sqlite3; b = sqlite3.connect('data'); b.execute('create table t(x)'); b.commit()";
  fs::create_directories(folder_ / "mine");
  ASSERT_EQ(std::system(("cd '" + (folder_ / "mine") + "' && python3 -c \"" + make + "\"").c_str()), 0);
  const auto before = read_all(folder_ / "mine/data");
  const std::string read =
      "import sqlite3; b = sqlite3.connect('data'); print(b.execute('select x from t').fetchall())";
  EXPECT_EQ(trial("python3 -c \"" + read + "\"").out, "[]\n") << "it is opened for both, and read";
  const auto written = trial("python3 -c \"" + read + "; b.execute('insert into t values (1)')\"");
  EXPECT_EQ(written.exit_code, 1);
  EXPECT_TRUE(contains(written.err, "it was not allowed to write " + (folder_ / "mine/data"))) << written.err;
  EXPECT_EQ(read_all(folder_ / "mine/data"), before);
}

TEST_F(FencedTrialTest, ACacheThatIsNotWrittenIsNoReasonToEnd) {
  fs::create_directories(folder_ / "mine/cache");
  ::setenv("XDG_CACHE_HOME", (folder_ / "mine/cache").c_str(), 1);
  const auto result = trial("echo x > cache/new || echo without");
  ::unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "without\n");
  EXPECT_TRUE(fs::is_empty(folder_ / "mine/cache"));
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

/// Python's processes meet in sockets among the temporary files.
TEST_F(FencedTrialTest, TemporaryFilesHaveShortPaths) {
  const std::string bind =
      "import os, socket, tempfile; socket.socket(socket.AF_UNIX).bind(tempfile.mkdtemp() + '/' + 65 * 's')";
  EXPECT_EQ(trial("python3 -c \"" + bind + "\" && ls $TMPDIR/*").exit_code, 0);
  EXPECT_GT((folder_ / "scratch/tmp/tmp12345678/").size() + 65, 107U) << "which it would not take";
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
