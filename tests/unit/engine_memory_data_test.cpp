// Arrays that are in memory already: what is handed out, and what is refused with which words.

#include <limits>
#include <numeric>

#include <gtest/gtest.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/engine/data/loader.hpp"
#include "fullwatt/engine/data/memory_data.hpp"

namespace fullwatt::engine {
namespace {

using base::contains;

template <class T>
const std::byte* bytes(const std::vector<T>& values) {
  return reinterpret_cast<const std::byte*>(values.data());
}

class MemoryDataTest : public testing::Test {
 protected:
  MemoryDataTest() { std::iota(rows_.begin(), rows_.end(), 0); }

  MemoryArray rows(std::vector<std::int64_t> shape, const std::string& name = "rows") const {
    return {name, Dtype::int32, std::move(shape), bytes(rows_)};
  }
  MemoryArray labels(std::int64_t samples) const { return {"labels", Dtype::int64, {samples}, bytes(labels_)}; }

  static std::string refusal(std::vector<MemoryArray> arrays) {
    const auto data = in_memory(std::move(arrays));
    return data ? "" : data.error().message + " | " + data.error().remedy;
  }

  std::vector<std::int32_t> rows_ = std::vector<std::int32_t>(24);
  std::vector<std::int64_t> labels_{10, 11, 12, 13};
};

TEST_F(MemoryDataTest, SamplesAreTheRowsOfTheArrays) {
  const auto data = in_memory({rows({4, 2, 3}), labels(4)});
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_EQ((*data)->samples(), 4);
  ASSERT_EQ((*data)->fields().size(), 2U);
  EXPECT_EQ((*data)->fields()[0].name, "rows");
  EXPECT_EQ((*data)->fields()[0].dtype, Dtype::int32);
  EXPECT_EQ((*data)->fields()[0].shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_TRUE((*data)->fields()[1].shape.empty());
  const std::vector<std::int64_t> wanted{3, 0};
  std::vector<std::int32_t> got(12);
  ASSERT_TRUE((*data)->fetch(0, wanted, reinterpret_cast<std::byte*>(got.data())));
  EXPECT_EQ(got, (std::vector<std::int32_t>{18, 19, 20, 21, 22, 23, 0, 1, 2, 3, 4, 5}));
  std::vector<std::int64_t> got_labels(2);
  ASSERT_TRUE((*data)->fetch(1, wanted, reinterpret_cast<std::byte*>(got_labels.data())));
  EXPECT_EQ(got_labels, (std::vector<std::int64_t>{13, 10}));
}

TEST_F(MemoryDataTest, NothingIsCopiedUntilItIsFetched) {
  const auto data = in_memory({labels(4)});
  labels_[2] = 99;
  const std::int64_t wanted = 2;
  std::int64_t got = 0;
  ASSERT_TRUE((*data)->fetch(0, {&wanted, 1}, reinterpret_cast<std::byte*>(&got)));
  EXPECT_EQ(got, 99);
}

TEST_F(MemoryDataTest, TheLoaderTakesIt) {
  const auto data = in_memory({rows({4, 6}), labels(4)});
  Loader loader(**data, {.batch = 2, .threads = 2, .shuffled = false});
  for (std::int64_t number = 0; number < 2; ++number) {
    const auto batch = loader.next();
    ASSERT_TRUE(batch && *batch);
    EXPECT_EQ(reinterpret_cast<const std::int32_t*>((*batch)->field(0))[0], number * 12);
    EXPECT_EQ(reinterpret_cast<const std::int64_t*>((*batch)->field(1))[1], 11 + number * 2);
  }
  EXPECT_FALSE(loader.next()->has_value());
}

TEST_F(MemoryDataTest, WhatDoesNotFitTogetherIsNamed) {
  EXPECT_TRUE(contains(refusal({}), "there are no arrays"));
  EXPECT_TRUE(contains(refusal({rows({6, 4}), labels(4)}), "the array labels has 4 samples, and rows has 6"));
  EXPECT_TRUE(contains(refusal({rows({4}), rows({4})}), "the array rows is there twice"));
  EXPECT_TRUE(contains(refusal({rows({4}, "")}), "an array has no name"));
  EXPECT_TRUE(contains(refusal({rows({})}), "the array rows holds a single number, no samples"));
  EXPECT_TRUE(contains(refusal({rows({0, 4})}), "the array rows holds no samples"));
  EXPECT_TRUE(contains(refusal({rows({4, -1})}), "the impossible shape (4, -1)"));
  EXPECT_TRUE(contains(refusal({rows({4, std::numeric_limits<std::int64_t>::max() / 8})}), "the impossible shape"));
  EXPECT_TRUE(contains(refusal({{"rows", Dtype::int32, {4}, nullptr}}), "the array rows has no memory"));
}

}  // namespace
}  // namespace fullwatt::engine
