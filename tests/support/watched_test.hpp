#pragma once

#include <chrono>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/temp_folder.hpp"
#include <gtest/gtest.h>

#include "fullwatt/base/process.hpp"
#include "fullwatt/base/text.hpp"
#include "fullwatt/model/json.hpp"
#include "fullwatt/record/run_folder.hpp"

namespace fullwatt::tests {

/// Runs trainings, alone or under `fullwatt run`, with a home folder of their own. The interpreter with PyTorch is the
/// one that FULLWATT_TEST_PYTHON names.
class WatchedTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* named = std::getenv("FULLWATT_TEST_PYTHON");
    if (named == nullptr || *named == '\0')
      GTEST_SKIP() << "skipped: FULLWATT_TEST_PYTHON names no Python with PyTorch";
    python_ = named;
    environment_ = base::current_environment();
    environment_["FULLWATT_HOME"] = home_.path();
    environment_["LANG"] = "C.UTF-8";
  }

  base::ChildResult run(std::vector<std::string> argv) const {
    base::ChildOptions options;
    options.argv = std::move(argv);
    options.environment = environment_;
    options.limit = std::chrono::minutes(15);
    auto result = base::run_child(options);
    EXPECT_TRUE(result && !result->timed_out);
    return result.value_or(base::ChildResult{.exit_code = -1});
  }
  /// A command under `fullwatt run`, with more of its options in front.
  base::ChildResult watched(std::vector<std::string> command, std::vector<std::string> options = {}) const {
    std::vector<std::string> argv{FULLWATT_PROGRAM, "run"};
    argv.insert(argv.end(), options.begin(), options.end());
    argv.emplace_back("--");
    argv.insert(argv.end(), command.begin(), command.end());
    return run(std::move(argv));
  }

  /// The folder of the last run.
  std::string newest() const {
    const auto runs = record::list_runs(home_ / "runs");
    return runs.empty() ? std::string() : home_ / ("runs/" + runs.front());
  }
  model::Json report() const { return model::Json::parse(read_all(newest() + "/report.json"), nullptr, false); }

  TempFolder folder_;
  TempFolder home_;
  std::string python_;
  base::Environment environment_;
};

/// The text behind a name that the training printed.
inline std::string printed(const base::ChildResult& result, const std::string& name) {
  for (const auto& line : base::lines(result.out)) {
    if (line.starts_with(name + " ")) return std::string(line.substr(name.size() + 1));
  }
  return {};
}

}  // namespace fullwatt::tests
