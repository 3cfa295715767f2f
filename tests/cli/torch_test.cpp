// The doctor asks a real PyTorch: the interpreter that FULLWATT_TEST_PYTHON names, as ./dev test sets it.

#include <cstdlib>

#include <gtest/gtest.h>

#include "fullwatt/base/process.hpp"
#include "fullwatt/base/text.hpp"
#include "fullwatt/model/json.hpp"

namespace fullwatt {
namespace {

base::ChildResult run(std::vector<std::string> argv) {
  base::ChildOptions options;
  options.argv = std::move(argv);
  options.environment = base::current_environment();
  options.limit = std::chrono::minutes(5);
  auto result = base::run_child(options);
  return result ? *std::move(result) : base::ChildResult{.exit_code = -1, .out = {}, .err = result.error().message};
}

class RealTorch : public testing::Test {
 protected:
  void SetUp() override {
    const char* named = std::getenv("FULLWATT_TEST_PYTHON");
    if (named == nullptr) GTEST_SKIP() << "skipped: FULLWATT_TEST_PYTHON names no Python with PyTorch";
    python_ = named;
  }
  model::Json machine() const {
    const auto result = run({FULLWATT_PROGRAM, "doctor", "--json", "--timeout", "240", "--python", python_});
    const auto report = model::Json::parse(result.out, nullptr, false);
    return report.is_object() ? report["machine"] : model::Json();
  }
  std::string python_;
};

TEST_F(RealTorch, AnswersWithItsVersionAndBuild) {
  const auto expected = run({python_, "-c", "import torch; print(torch.__version__, torch.version.cuda)"});
  ASSERT_TRUE(expected.ok()) << expected.err;
  const auto answers = machine()["torch"]["answers"];
  ASSERT_TRUE(answers["version"].is_string()) << answers.dump(1);
  EXPECT_EQ(answers["version"].get<std::string>() + " " + answers["cuda"].get<std::string>(), base::trim(expected.out));
  EXPECT_TRUE(answers["available"].is_boolean());
  EXPECT_FALSE(answers["archs"].empty());
}

TEST_F(RealTorch, OnDiskIsFoundWithoutRunningIt) {
  const auto result = run({FULLWATT_PROGRAM, "doctor", "--json", "--no-torch", "--python", python_});
  const auto report = model::Json::parse(result.out, nullptr, false);
  ASSERT_TRUE(report.is_object()) << result.err;
  const auto& installs = report["machine"]["torch"]["installs"];
  ASSERT_FALSE(installs.empty());
  EXPECT_TRUE(installs[0]["version"].get<std::string>().starts_with("2."));
  EXPECT_TRUE(installs[0]["cuda_library"].get<bool>());
}

}  // namespace
}  // namespace fullwatt
