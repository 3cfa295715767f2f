// NumPy's files: what is read, and what is refused with which words. Files of NumPy itself are read in
// engine_numpy_test.

#include <filesystem>
#include <fstream>

#include "tests/support/temp_folder.hpp"
#include <gtest/gtest.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/engine/data/data_set.hpp"

namespace fullwatt::engine {
namespace {

using base::contains;

/// A header as NumPy writes it.
std::string header(const std::string& dictionary, int version = 1) {
  std::string text = dictionary + "\n";
  std::string start = "\x93NUMPY";
  start += static_cast<char>(version);
  start += '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) start += static_cast<char>(text.size() >> (8 * i));
  return start + text;
}

std::string dictionary(const std::string& descr, const std::string& shape, const std::string& fortran = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }";
}

std::string refusal(const std::string& start) {
  const auto parsed = parse_npy_header(start);
  return parsed ? "" : parsed.error().message + " | " + parsed.error().remedy;
}

TEST(NpyHeaderTest, AllVersionsAndTypesAreRead) {
  for (const int version : {1, 2, 3}) {
    const auto start = header(dictionary("<f4", "(256, 3, 160, 320)"), version);
    const auto parsed = parse_npy_header(start);
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_EQ(parsed->dtype, Dtype::float32);
    EXPECT_EQ(parsed->shape, (std::vector<std::int64_t>{256, 3, 160, 320}));
    EXPECT_EQ(parsed->data_offset, start.size());
    EXPECT_EQ(parsed->data_bytes(), 4U * 256 * 3 * 160 * 320);
  }
  for (const auto& [code, dtype] : std::map<std::string, Dtype>{{"|b1", Dtype::boolean},
                                                                {"|i1", Dtype::int8},
                                                                {"|u1", Dtype::uint8},
                                                                {"<i2", Dtype::int16},
                                                                {"<u2", Dtype::uint16},
                                                                {"<i4", Dtype::int32},
                                                                {"<u4", Dtype::uint32},
                                                                {"<i8", Dtype::int64},
                                                                {"<u8", Dtype::uint64},
                                                                {"<f2", Dtype::float16},
                                                                {"<f8", Dtype::float64}}) {
    const auto parsed = parse_npy_header(header(dictionary(code, "(7,)")));
    ASSERT_TRUE(parsed) << code;
    EXPECT_EQ(parsed->dtype, dtype);
    EXPECT_EQ(parsed->shape, std::vector<std::int64_t>{7});
  }
}

TEST(NpyHeaderTest, OrderMattersOnlyWhereThereAreColumns) {
  EXPECT_TRUE(parse_npy_header(header(dictionary("<f4", "(7,)", "True"))));
  EXPECT_TRUE(parse_npy_header(header(dictionary("<f4", "()"))));
  EXPECT_TRUE(contains(refusal(header(dictionary("<f4", "(7, 2)", "True"))), "np.ascontiguousarray"));
}

TEST(NpyHeaderTest, WhatCannotBeReadIsRefusedWithTheReason) {
  EXPECT_TRUE(contains(refusal("PK\x03\x04 something"), "no .npy file"));
  EXPECT_TRUE(contains(refusal("\x93NUMPY"), "ends within its header"));
  EXPECT_TRUE(contains(refusal(header(dictionary("<f4", "(7,)")).substr(0, 40)), "ends within its header"));
  EXPECT_TRUE(contains(refusal(header(dictionary("<f4", "(7,)"), 9)), "version 9"));
  EXPECT_TRUE(contains(refusal(header(dictionary(">f4", "(7,)"))), "big-endian"));
  EXPECT_TRUE(contains(refusal(header(dictionary("<c8", "(7,)"))), "<c8"));
  EXPECT_TRUE(contains(refusal(header(dictionary("|O", "(7,)"))), "|O"));
  EXPECT_TRUE(contains(refusal(header("{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (7,), }")),
                       "each field as a file"));
  EXPECT_TRUE(contains(refusal(header("{'descr': '<f4', 'shape': (7,), }")), "cannot be read"));
  EXPECT_TRUE(contains(refusal(header(dictionary("<f4", "(7, -1)"))), "cannot be read"));
  EXPECT_TRUE(contains(refusal(header(dictionary("<f8", "(4611686018427387904, 8)"))), "larger than any file"));
}

class NpyFolderTest : public testing::Test {
 protected:
  void write(const std::string& name, int rows, int columns, int first = 0, int missing = 0) {
    std::string text = header(dictionary("<i4", "(" + std::to_string(rows) + ", " + std::to_string(columns) + ")"));
    for (int i = 0; i < rows * columns - missing; ++i) {
      const int value = first + i;
      text.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
    folder_.write(name, text);
  }
  std::string refusal(const std::map<std::string, std::string>& patterns) const {
    const auto data = open_npy_folder(folder_ / "", patterns);
    return data ? "" : data.error().message + " | " + data.error().remedy;
  }

  tests::TempFolder folder_;
};

TEST(NpyHeaderTest, EveryRefusalSaysWhatToDo) {
  const auto whole = header(dictionary("<f4", "(7, 3)"));
  for (const auto& start : {std::string("PK"), whole.substr(0, 9), whole.substr(0, 40), header("{'descr': '<f4'}"),
                            header(dictionary("<f4", "(7, 3)"), 4), header(dictionary("<", "(7,)")),
                            header(dictionary("<V2", "(7,)")), header(dictionary("<f4", "(9223372036854775807, 9)"))}) {
    const auto parsed = parse_npy_header(start);
    ASSERT_FALSE(parsed) << start;
    EXPECT_TRUE(contains(parsed.error().remedy, "ave ")) << parsed.error().message << " | " << parsed.error().remedy;
  }
}

TEST_F(NpyFolderTest, FilesOfAFieldAreOneArrayInTheOrderOfTheirNames) {
  write("batch1_x.npy", 3, 2, 100);
  write("batch0_x.npy", 2, 2);
  write("y.npy", 5, 1, 1000);
  const auto data = open_npy_folder(folder_ / "", {{"x", "batch*_x.npy"}, {"y", "y.npy"}});
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_EQ((*data)->samples(), 5);
  ASSERT_EQ((*data)->fields().size(), 2U);
  EXPECT_EQ((*data)->fields()[0].name, "x");
  EXPECT_EQ((*data)->fields()[0].shape, std::vector<std::int64_t>{2});
  std::vector<std::int32_t> values(6);
  const std::vector<std::int64_t> wanted{4, 0, 2};
  ASSERT_TRUE((*data)->fetch(0, wanted, reinterpret_cast<std::byte*>(values.data())));
  EXPECT_EQ(values, (std::vector<std::int32_t>{104, 105, 0, 1, 100, 101}));
  ASSERT_TRUE((*data)->fetch(1, wanted, reinterpret_cast<std::byte*>(values.data())));
  EXPECT_EQ(values[0], 1004);
  EXPECT_EQ((*data)->origin(0, 1), folder_ / "batch0_x.npy, row 1 (the first is 0)");
  EXPECT_EQ((*data)->origin(0, 2), folder_ / "batch1_x.npy, row 0 (the first is 0)");
  EXPECT_EQ((*data)->origin(1, 4), folder_ / "y.npy, row 4 (the first is 0)");
}

TEST_F(NpyFolderTest, RowsAreReadOneByOneAndInRunsOverTheEndOfAFile) {
  constexpr int kWide = 2000;  // rows that are read from the file each time
  write("x0.npy", 3, kWide);
  write("x1.npy", 4, kWide, 3 * kWide);
  const auto data = open_npy_folder(folder_ / "", {{"x", "x*.npy"}});
  ASSERT_TRUE(data) << data.error().message;
  const std::vector<std::int64_t> wanted{1, 2, 3, 4, 6, 0, 1, 5};
  std::vector<std::int32_t> values(wanted.size() * kWide);
  ASSERT_TRUE((*data)->fetch(0, wanted, reinterpret_cast<std::byte*>(values.data())));
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(values[i], wanted[i / kWide] * kWide + static_cast<std::int64_t>(i % kWide));
}

TEST_F(NpyFolderTest, AFileThatBecomesShorterIsNamedAndEndsNothing) {
  constexpr int kWide = 2000;
  write("wide.npy", 5, kWide);
  write("small.npy", 5, 2);
  const auto data = open_npy_folder(folder_ / "", {{"small", "small.npy"}, {"wide", "wide.npy"}});
  ASSERT_TRUE(data) << data.error().message;
  std::filesystem::resize_file(folder_ / "wide.npy", 20'000);
  std::filesystem::resize_file(folder_ / "small.npy", 0);
  std::vector<std::int32_t> values(2UL * kWide);
  auto* const to = reinterpret_cast<std::byte*>(values.data());
  EXPECT_TRUE((*data)->fetch(1, std::vector<std::int64_t>{1, 0}, to));
  for (const auto& gone : std::vector<std::vector<std::int64_t>>{{2, 3}, {4}}) {
    const auto fetched = (*data)->fetch(1, gone, to);
    ASSERT_FALSE(fetched);
    EXPECT_TRUE(contains(fetched.error().message, "wide.npy: it became shorter while it was in use: 20000 bytes"))
        << fetched.error().message;
    EXPECT_TRUE(contains(fetched.error().remedy, "last checkpoint"));
  }
  EXPECT_TRUE((*data)->fetch(0, std::vector<std::int64_t>{4}, to)) << "small rows are in memory";
  EXPECT_EQ(values[1], 9);
}

TEST_F(NpyFolderTest, WhatDoesNotFitTogetherIsNamed) {
  write("a.npy", 5, 2);
  write("b.npy", 4, 2);
  write("c.npy", 5, 3);
  write("cut.npy", 5, 2, 0, 3);
  folder_.write("empty.npy", "");
  EXPECT_TRUE(contains(refusal({{"a", "a.npy"}, {"b", "b.npy"}}), "the field b has 4 samples, and a has 5"));
  EXPECT_TRUE(contains(refusal({{"a", "?.npy"}}), "no file in"));
  EXPECT_TRUE(contains(refusal({{"all", "*.npy"}}), "of the shape (3), and")) << refusal({{"all", "*.npy"}});
  EXPECT_TRUE(contains(refusal({{"cut", "cut.npy"}}), "28 bytes of numbers are there, and its shape needs 40"));
  EXPECT_TRUE(contains(refusal({{"empty", "empty.npy"}}), "it is empty"));
  const auto missing = open_npy_folder("/no/such/folder", {{"a", "a.npy"}});
  EXPECT_TRUE(contains(missing.error().message, "/no/such/folder: No such file"));
}

}  // namespace
}  // namespace fullwatt::engine
