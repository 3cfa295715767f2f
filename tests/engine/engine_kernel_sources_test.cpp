#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include <gtest/gtest.h>

#include "fullwatt/vendor/nvrtc/compiler.hpp"

namespace fullwatt::vendor::nvrtc {
namespace {

namespace fs = std::filesystem;

/// As the build puts it together.
std::string source(const std::string& name) {
  std::ostringstream text;
  for (const auto& part : {std::string("numbers"), name})
    text << std::ifstream(FULLWATT_SOURCE "/fullwatt/engine/kernels/" + part + ".cu").rdbuf();
  return text.str();
}

/// The library beside PyTorch whose name begins so.
std::optional<std::string> library(const std::string& name) {
  std::error_code failure;
  for (const auto& entry : fs::recursive_directory_iterator(FULLWATT_NVIDIA_FOLDER, failure)) {
    const auto file = entry.path().filename().string();
    if (file.starts_with(name) && file.find(".alt.") == std::string::npos) return entry.path().string();
  }
  return std::nullopt;
}

class KernelSourcesTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto builtins = library("libnvrtc-builtins.so");
    const auto nvrtc = library("libnvrtc.so");
    if (!builtins || !nvrtc) GTEST_SKIP() << "no NVRTC beside PyTorch";
    static const auto kBuiltins = base::Library::load(*builtins);  // NVRTC asks for it by its name alone
    auto compiler = Compiler::load(*nvrtc);
    ASSERT_TRUE(compiler) << compiler.error().message;
    compiler_.emplace(*std::move(compiler));
  }

  std::optional<Compiler> compiler_;
};

TEST_F(KernelSourcesTest, TheyCompileForEveryArchitectureAndTypeOfNumbers) {
  for (const auto* const name : {"batch_norm", "cross_entropy"}) {
    for (const int architecture : {75, 80, 86, 89, 90, 100, 120}) {
      for (const std::string number : {"Float", "Bfloat16", "Half"}) {
        const auto image = compiler_->compile(source(name), {"--std=c++17", "-DNUMBER=" + number}, architecture);
        ASSERT_TRUE(image) << name << ' ' << architecture << ' ' << number << ": " << image.error().message;
        EXPECT_TRUE(
            image->starts_with("\x7f"
                               "ELF"))
            << architecture;
      }
    }
  }
}

TEST_F(KernelSourcesTest, ACardOfTheFutureGetsPtx) {
  const auto image = compiler_->compile(source("batch_norm"), {"--std=c++17", "-DNUMBER=Half"}, 990);
  ASSERT_TRUE(image) << image.error().message;
  EXPECT_NE(image->find(".target"), std::string::npos);
}

TEST_F(KernelSourcesTest, WhatCannotBeCompiledIsToldWithItsLog) {
  const auto wrong = compiler_->compile("__global__ void f() { missing(); }", {}, 90);
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().message.find("missing"), std::string::npos) << wrong.error().message;
  const auto old = compiler_->compile("", {}, 10);
  ASSERT_FALSE(old);
  EXPECT_EQ(old.error().message, "NVRTC has no architecture 10");
}

TEST(CompilerTest, ALibraryThatIsAnotherIsRefused) {
  const auto none = Compiler::load("libnothing-at-all.so");
  ASSERT_FALSE(none);
  const auto other = Compiler::load("libm.so.6");
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().message, "libm.so.6 has no nvrtcGetErrorString");
}

}  // namespace
}  // namespace fullwatt::vendor::nvrtc
