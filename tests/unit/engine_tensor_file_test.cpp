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
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const int bit : {1, 2, 16}) {
      auto damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ bit);
      EXPECT_TRUE(at < whole.size() - 24 || refusal(damaged) == "it does not fit its checksum") << at;
      const bool is_padding = whole[at] == ' ' && (damaged[at] == '\t' || damaged[at] == '\n' || damaged[at] == '\r');
      EXPECT_TRUE(is_padding || !refusal(damaged).empty())
          << at << ", '" << damaged[at] << "' for '" << whole[at] << "'";
    }
  }
}

/// A file with a header of our own and no data.
std::string file_with(const std::string& header) {
  const std::uint64_t length = header.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes + header;
}

TEST_F(TensorFileTest, FilesOfBeforeAreReadAndThoseOfLaterAreRefused) {
  EXPECT_EQ(refusal(file_with(R"({"__metadata__":{"crc32":"00000000","step":"3"}})")), "") << "of the data alone";
  EXPECT_EQ(refusal(file_with(R"({"__metadata__":{"crc32":"00000001","step":"3"}})")), "it does not fit its checksum");
  EXPECT_EQ(refusal(file_with(R"({"__metadata__":{"crc32":"00000000","fullwatt_schema":"3"}})")),
            "it is of the schema 3, and this fullwatt reads 2");
  EXPECT_EQ(refusal(file_with(R"({"__metadata__":{"fullwatt_schema":"2","step":"3"}})")),
            "it does not fit its checksum")
      << "it was taken out";
  EXPECT_EQ(refusal(file_with(R"({"__metadata__":{"format":"pt"}})")), "") << "Python's own";
}

TEST_F(TensorFileTest, ShortTypesOfPythonAreKnownAndOthersNamed) {
  const auto one = [](const std::string& type) {
    return file_with(R"({"w":{"dtype":")" + type + R"(","shape":[1],"data_offsets":[0,2]}})") + "ab";
  };
  for (const auto& [name, dtype] : {std::pair{"BF16", Dtype::bfloat16}, {"F16", Dtype::float16}}) {
    const auto parsed = parse_tensors(one(name));
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_EQ(parsed->first.front().dtype, dtype);
  }
  const auto parsed = parse_tensors(one("F8_E4M3"));
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().message, "'w' is of the type F8_E4M3, which is not read");
  EXPECT_TRUE(contains(parsed.error().remedy, "bfloat16"));
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
