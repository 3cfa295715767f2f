#include <cstring>
#include <filesystem>

#include "tests/support/temp_folder.hpp"
#include <gtest/gtest.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/engine/tensor_file.hpp"

namespace fullwatt::engine {
namespace {

using base::contains;

class TensorFileTest : public testing::Test {
 protected:
  std::string path() const { return folder_ / "weights.safetensors"; }
  base::Result<void> write() const {
    return write_tensors(path(),
                         {{"head.weight", Dtype::float32, {2, 2}, reinterpret_cast<const std::byte*>(weights_.data())},
                          {"step", Dtype::int64, {}, reinterpret_cast<const std::byte*>(&step_)},
                          {"nothing", Dtype::uint8, {0, 3}, nullptr}},
                         {{"epoch", "3"}});
  }
  std::string refusal(const std::string& bytes) const {
    const auto parsed = parse_tensors(bytes);
    return parsed ? "" : parsed.error().message;
  }

  tests::TempFolder folder_;
  std::vector<float> weights_{1, 2, 3, 4.5};
  std::int64_t step_ = 77;
};

TEST_F(TensorFileTest, WhatIsWrittenIsReadAgain) {
  ASSERT_TRUE(write());
  const auto file = TensorFile::open(path());
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->metadata().at("epoch"), "3");
  const auto* weights = file->find("head.weight");
  ASSERT_NE(weights, nullptr);
  EXPECT_EQ(weights->shape, (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(std::memcmp(weights->data, weights_.data(), weights->bytes()), 0);
  EXPECT_EQ(std::memcmp(file->find("step")->data, &step_, sizeof(step_)), 0);
  EXPECT_EQ(file->find("nothing")->bytes(), 0U);
  EXPECT_EQ(file->find("none"), nullptr);
}

TEST_F(TensorFileTest, ADamagedFileIsRefusedWhereverItIsDamaged) {
  ASSERT_TRUE(write());
  const auto whole = tests::read_all(path());
  ASSERT_EQ(refusal(whole), "");
  for (std::size_t length = 0; length < whole.size(); ++length)
    EXPECT_NE(refusal(whole.substr(0, length)), "") << length;
  for (std::size_t at = whole.size() - 24; at < whole.size(); ++at) {
    auto damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    EXPECT_EQ(refusal(damaged), "it does not fit its checksum") << at;
  }
}

TEST_F(TensorFileTest, AFileThatCannotBeWrittenLeavesTheOneThatIsThere) {
  ASSERT_TRUE(write());
  const auto before = tests::read_all(path());
  std::filesystem::create_symlink("/dev/full", path() + ".new");
  const auto failed = write();
  ASSERT_FALSE(failed);
  EXPECT_TRUE(contains(failed.error().message, "No space left"));
  EXPECT_EQ(tests::read_all(path()), before);
  EXPECT_FALSE(TensorFile::open("/no/such/file"));
}

}  // namespace
}  // namespace fullwatt::engine
