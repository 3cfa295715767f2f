// A folder of pictures: which samples it makes, which colours they have, and what is refused with which words. The
// files are written here by libjpeg and libpng.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <numeric>
#include <thread>

#include "tests/support/temp_folder.hpp"
#include <gtest/gtest.h>
#include <jpeglib.h>
#include <png.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/engine/data/image_folder.hpp"
#include "fullwatt/engine/data/loader.hpp"

namespace fullwatt::engine {
namespace {

namespace fs = std::filesystem;
using base::contains;
using Bytes = std::vector<std::uint8_t>;

/// What a picture shows: a value for each row, column and channel.
using Painter = std::function<int(int row, int column, int channel)>;

Painter plain(int value) {
  return [=](int, int, int) { return value; };
}

/// Differs from pixel to pixel and from channel to channel.
int colourful(int row, int column, int channel) {
  return (row * 31 + column * 7 + channel * 90) % 256;
}

/// Without edges, so that a JPEG keeps it.
int soft(int row, int column, int channel) {
  return 60 + row + column + channel * 40;
}

Bytes paint(int height, int width, int channels, const Painter& painter) {
  Bytes values;
  for (int row = 0; row < height; ++row) {
    for (int column = 0; column < width; ++column) {
      for (int channel = 0; channel < channels; ++channel)
        values.push_back(static_cast<std::uint8_t>(painter(row, column, channel)));
    }
  }
  return values;
}

/// The same as the data set hands it out.
Bytes planes(int height, int width, const Painter& painter) {
  Bytes values;
  for (int channel = 0; channel < 3; ++channel) {
    for (int row = 0; row < height; ++row) {
      for (int column = 0; column < width; ++column)
        values.push_back(static_cast<std::uint8_t>(painter(row, column, channel)));
    }
  }
  return values;
}

struct PngKind {
  int type = PNG_COLOR_TYPE_RGB;
  int channels = 3;
  int bits = 8;
  int interlace = PNG_INTERLACE_NONE;
};

/// Entry n of every palette.
png_color palette_entry(int n) {
  return {static_cast<png_byte>(n), static_cast<png_byte>(255 - n), static_cast<png_byte>(n / 2)};
}

/// A picture, or only the beginning of one where there are no rows.
std::string png(int height, int width, const PngKind& kind, Bytes rows) {
  std::string file;
  auto* png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  auto* info = png_create_info_struct(png);
  png_set_write_fn(
      png, &file,
      [](png_structp to, png_bytep data, std::size_t bytes) {
        static_cast<std::string*>(png_get_io_ptr(to))->append(reinterpret_cast<const char*>(data), bytes);
      },
      nullptr);
  png_set_IHDR(png, info, static_cast<unsigned>(width), static_cast<unsigned>(height), kind.bits, kind.type,
               kind.interlace, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  std::vector<png_color> palette;
  for (int n = 0; n < 256; ++n) palette.push_back(palette_entry(n));
  if (kind.type == PNG_COLOR_TYPE_PALETTE) png_set_PLTE(png, info, palette.data(), 256);
  png_write_info(png, info);
  const auto row_bytes = png_get_rowbytes(png, info);
  std::vector<png_bytep> starts;
  for (std::size_t at = 0; at < rows.size(); at += row_bytes) starts.push_back(rows.data() + at);
  if (!starts.empty()) {
    png_write_image(png, starts.data());
    png_write_end(png, info);
  }
  png_destroy_write_struct(&png, &info);
  return file;
}

std::string png(int height, int width, const Painter& painter, const PngKind& kind = {}) {
  return png(height, width, kind, paint(height, width, kind.channels, painter));
}

struct JpegKind {
  J_COLOR_SPACE space = JCS_RGB;
  int channels = 3;
  bool progressive = false;
};

std::string jpeg(int height, int width, const Painter& painter, const JpegKind& kind = {}) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long bytes = 0;
  jpeg_mem_dest(&info, &memory, &bytes);
  info.image_height = static_cast<unsigned>(height);
  info.image_width = static_cast<unsigned>(width);
  info.input_components = kind.channels;
  info.in_color_space = kind.space;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 95, TRUE);
  if (kind.progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  auto rows = paint(height, width, kind.channels, painter);
  const auto row_bytes = rows.size() / info.image_height;
  for (auto* row = rows.data(); info.next_scanline < info.image_height; row += row_bytes)
    jpeg_write_scanlines(&info, &row, 1);
  jpeg_finish_compress(&info);
  std::string file(reinterpret_cast<const char*>(memory), bytes);
  jpeg_destroy_compress(&info);
  std::free(memory);
  return file;
}

/// Where a marker's own two bytes begin.
std::size_t marker_at(const std::string& jpeg, unsigned char marker) {
  return jpeg.find(std::string{'\xFF', static_cast<char>(marker)});
}

/// The largest difference of two pictures.
int difference(const Bytes& left, const Bytes& right) {
  EXPECT_EQ(left.size(), right.size());
  int most = 0;
  for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i)
    most = std::max(most, std::abs(left[i] - right[i]));
  return most;
}

class ImageFolderTest : public testing::Test {
 protected:
  std::unique_ptr<DataSet> open(ImageSize size) const {
    auto data = open_image_folder(folder_.path(), size);
    EXPECT_TRUE(data) << data.error().message;
    return data ? *std::move(data) : nullptr;
  }
  static base::Result<Bytes> fetch(const DataSet& data, std::vector<std::int64_t> samples) {
    Bytes values(data.fields()[0].sample_bytes() * samples.size());
    const auto fetched = data.fetch(0, samples, reinterpret_cast<std::byte*>(values.data()));
    if (!fetched) return std::unexpected(fetched.error());
    return values;
  }
  /// A file as the only one of the folder.
  base::Result<Bytes> decode(const std::string& file, ImageSize size, const std::string& name) const {
    fs::remove_all(folder_ / "class");
    folder_.write("class/" + name, file);
    return fetch(*open(size), {0});
  }
  /// What it looks like.
  Bytes look(const std::string& file, ImageSize size, const std::string& name = "any.png") const {
    const auto seen = decode(file, size, name);
    EXPECT_TRUE(seen) << seen.error().message;
    return seen.value_or(Bytes{});
  }
  std::string refusal(const std::string& file, const std::string& name = "any.png") const {
    const auto seen = decode(file, {8, 8}, name);
    return seen ? "" : seen.error().message + " | " + seen.error().remedy;
  }
  std::string refusal_to_open() const {
    const auto data = open_image_folder(folder_.path(), {8, 8});
    return data ? "" : data.error().message + " | " + data.error().remedy;
  }

  tests::TempFolder folder_;
};

TEST_F(ImageFolderTest, ClassesAndFilesAreOrderedAsInTorchvision) {
  int shade = 0;
  for (const auto* name : {"bird/1.png", "bird/x/2.PNG", "bird/x-y/0.png", "bird/x/y/1.png", "cat/10.png", "cat/9.png"})
    folder_.write(name, png(2, 2, plain(shade++)));
  folder_.write("Ant/1.jpeg", jpeg(2, 2, plain(shade)));
  folder_.write("bird/notes.txt", "no picture");
  folder_.write("classes.txt", "no class");
  const auto data = open({2, 2});
  EXPECT_EQ(data->samples(), 7);
  ASSERT_EQ(data->fields().size(), 2U);
  EXPECT_EQ(data->fields()[0].name, "images");
  EXPECT_EQ(data->fields()[0].dtype, Dtype::uint8);
  EXPECT_EQ(data->fields()[0].shape, (std::vector<std::int64_t>{3, 2, 2}));
  EXPECT_EQ(data->fields()[1].name, "labels");
  EXPECT_EQ(data->fields()[1].dtype, Dtype::int64);
  EXPECT_TRUE(data->fields()[1].shape.empty());
  const std::vector<std::int64_t> all{0, 1, 2, 3, 4, 5, 6};
  std::vector<std::int64_t> labels(all.size());
  ASSERT_TRUE(data->fetch(1, all, reinterpret_cast<std::byte*>(labels.data())));
  EXPECT_EQ(labels, (std::vector<std::int64_t>{0, 1, 1, 1, 1, 2, 2}));
  Bytes shades;
  for (const auto sample : all) shades.push_back(fetch(*data, {sample})->front());
  EXPECT_EQ(shades, (Bytes{6, 0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(data->origin(1, 0), folder_ / "Ant/1.jpeg");
  EXPECT_EQ(data->origin(0, 6), folder_ / "cat/9.png");
}

TEST_F(ImageFolderTest, PngFilesOfTheWantedSizeKeepEveryPixel) {
  const auto grey = [](int row, int column, int) { return colourful(row, column, 0); };
  const auto of_palette = [&](int row, int column, int channel) {
    const auto entry = palette_entry(grey(row, column, 0));
    return static_cast<int>(channel == 0 ? entry.red : channel == 1 ? entry.green : entry.blue);
  };
  EXPECT_EQ(look(png(5, 9, colourful), {5, 9}), planes(5, 9, colourful));
  EXPECT_EQ(look(png(5, 9, colourful, {.interlace = PNG_INTERLACE_ADAM7}), {5, 9}), planes(5, 9, colourful));
  EXPECT_EQ(look(png(5, 9, colourful, {PNG_COLOR_TYPE_RGB_ALPHA, 4}), {5, 9}), planes(5, 9, colourful));
  EXPECT_EQ(look(png(5, 9, grey, {PNG_COLOR_TYPE_GRAY, 1}), {5, 9}), planes(5, 9, grey));
  EXPECT_EQ(look(png(5, 9, colourful, {PNG_COLOR_TYPE_GRAY_ALPHA, 2}), {5, 9}), planes(5, 9, grey));
  EXPECT_EQ(look(png(5, 9, grey, {PNG_COLOR_TYPE_PALETTE, 1}), {5, 9}), planes(5, 9, of_palette));
  EXPECT_EQ(look(png(1, 1, colourful), {1, 1}), planes(1, 1, colourful));
}

TEST_F(ImageFolderTest, PngFilesWithOtherDepthsBecomeEightBits) {
  const auto of_bit = [](int row, int column, int) { return row == column ? 255 : 0; };
  EXPECT_EQ(look(png(2, 8, {PNG_COLOR_TYPE_GRAY, 1, 1}, {0x80, 0x40}), {2, 8}), planes(2, 8, of_bit));
  Bytes wide;
  for (const auto value : paint(5, 9, 3, colourful)) wide.insert(wide.end(), {value, 200});
  EXPECT_EQ(look(png(5, 9, {PNG_COLOR_TYPE_RGB, 3, 16}, wide), {5, 9}), planes(5, 9, colourful));
}

TEST_F(ImageFolderTest, JpegFilesComeOutNearlyAsTheyWere) {
  const auto grey = [](int row, int column, int) { return soft(row, column, 0); };
  // As Adobe's programs write it: inverted, here with a quarter of the black.
  const auto inks = [](int row, int column, int channel) { return channel == 3 ? 191 : soft(row, column, channel); };
  const auto printed = [](int row, int column, int channel) { return soft(row, column, channel) * 191 / 255; };
  EXPECT_LE(difference(look(jpeg(24, 40, soft), {24, 40}, "a.jpg"), planes(24, 40, soft)), 4);
  EXPECT_LE(difference(look(jpeg(24, 40, soft, {JCS_RGB, 3, true}), {24, 40}), planes(24, 40, soft)), 4);
  EXPECT_LE(difference(look(jpeg(24, 40, grey, {JCS_GRAYSCALE, 1}), {24, 40}), planes(24, 40, grey)), 2);
  EXPECT_LE(difference(look(jpeg(24, 40, inks, {JCS_CMYK, 4}), {24, 40}), planes(24, 40, printed)), 4);
  EXPECT_LE(difference(look(jpeg(1, 1, soft), {1, 1}), planes(1, 1, soft)), 3);
}

TEST_F(ImageFolderTest, TheContentTellsTheFormatNotTheName) {
  EXPECT_EQ(look(png(3, 3, colourful), {3, 3}, "really_a_png.JPEG"), planes(3, 3, colourful));
}

TEST_F(ImageFolderTest, TheCentreIsCutOut) {
  const auto moved = [](int rows, int columns) {
    return [=](int row, int column, int channel) { return colourful(row + rows, column + columns, channel); };
  };
  EXPECT_EQ(look(png(8, 3, colourful), {2, 3}), planes(2, 3, moved(3, 0)));
  EXPECT_EQ(look(png(3, 8, colourful), {3, 4}), planes(3, 4, moved(0, 2)));
  // Halves are rounded to even ones, as Python does.
  EXPECT_EQ(look(png(4, 3, colourful), {3, 3}), planes(3, 3, moved(0, 0)));
  EXPECT_EQ(look(png(6, 3, colourful), {3, 3}), planes(3, 3, moved(2, 0)));
  EXPECT_EQ(look(png(8, 3, colourful), {3, 3}), planes(3, 3, moved(2, 0)));
}

/// The expected numbers are those of PIL 13: resize with BILINEAR, then crop.
TEST_F(ImageFolderTest, ScalingIsThatOfPil) {
  const auto of_table = [](const std::vector<Bytes>& table) {
    return [=](int row, int column, int) {
      return static_cast<int>(table[static_cast<std::size_t>(row)][static_cast<std::size_t>(column)]);
    };
  };
  const auto ramp = [](int row, int column, int) { return (row * 8 + column) * 5; };
  EXPECT_EQ(look(png(6, 8, ramp), {3, 3}), planes(3, 3, of_table({{33, 42, 52}, {104, 113, 123}, {175, 184, 194}})));
  EXPECT_EQ(look(png(2, 2, of_table({{0, 100}, {200, 50}})), {5, 5}), planes(5, 5,
                                                                             of_table({{0, 10, 50, 90, 100},
                                                                                       {20, 27, 57, 88, 95},
                                                                                       {100, 98, 88, 78, 75},
                                                                                       {180, 168, 118, 67, 55},
                                                                                       {200, 185, 125, 65, 50}})));
  EXPECT_EQ(look(png(1, 1, colourful), {4, 7}), planes(4, 7, [](int, int, int channel) { return channel * 90; }));
}

TEST_F(ImageFolderTest, LargeJpegFilesAreReducedButLookTheSame) {
  const auto waves = [](int row, int column, int channel) { return (row / 5 + column / 7 + channel * 30) % 200; };
  for (const auto& size : {ImageSize{32, 32}, ImageSize{60, 20}, ImageSize{101, 130}, ImageSize{300, 500}}) {
    const auto exact = look(png(401, 603, waves), size);
    const auto reduced = look(jpeg(401, 603, waves), size);
    const double sum = std::transform_reduce(exact.begin(), exact.end(), reduced.begin(), 0.0, std::plus{},
                                             [](int left, int right) { return std::abs(left - right); });
    EXPECT_LE(sum / static_cast<double>(exact.size()), 2) << size.height;
  }
}

TEST_F(ImageFolderTest, FilesThatAreCutOffAreNamedWhereverTheyEnd) {
  for (const auto& file : {png(20, 20, colourful), png(20, 20, colourful, {.interlace = PNG_INTERLACE_ADAM7}),
                           jpeg(20, 20, colourful), jpeg(20, 20, colourful, {JCS_RGB, 3, true})}) {
    ASSERT_EQ(refusal(file), "");
    for (std::size_t bytes = 8; bytes < file.size(); bytes += 7) {
      const auto told = refusal(file.substr(0, bytes), "cut.jpg");
      EXPECT_TRUE(contains(told, "class/cut.jpg: it cannot be decoded: ")) << bytes << told;
      EXPECT_TRUE(contains(told, "write it again, or take it out")) << told;
    }
    EXPECT_TRUE(contains(refusal(file.substr(0, file.size() - 1)), "cannot be decoded"));
  }
}

TEST_F(ImageFolderTest, DamagedFilesAreNamed) {
  auto picture = png(20, 20, colourful);
  picture[picture.size() / 2] ^= 0x10;
  EXPECT_TRUE(contains(refusal(picture), "it cannot be decoded: "));
  auto photo = jpeg(60, 60, colourful);
  const auto hole = photo.size() / 2;
  EXPECT_TRUE(contains(refusal(photo.replace(hole, 2, "\xFF\xD9")), "premature end of data segment"));
}

TEST_F(ImageFolderTest, FilesThatAreNoImagesAreNamed) {
  EXPECT_TRUE(contains(refusal("Dear reader", "letter.jpg"), "class/letter.jpg: it is no JPEG or PNG file"));
  EXPECT_TRUE(contains(refusal("", "empty.jpg"), "class/empty.jpg: it is empty"));
}

TEST_F(ImageFolderTest, ImagesThatAreTooLargeAreRefusedBeforeTheyAreDecoded) {
  const std::string start_of_data("\0\0\1\0IDAT", 8);
  EXPECT_TRUE(contains(refusal(png(30'000, 20'000, PngKind{}, {}) + start_of_data),
                       "it has 20000 x 30000 pixels, and at most 268435456"));
  auto photo = jpeg(8, 8, soft);
  constexpr unsigned char kStartOfFrame = 0xC0;
  photo.replace(marker_at(photo, kStartOfFrame) + 5, 4, "\x70\x00\x70\x00", 4);
  EXPECT_TRUE(contains(refusal(photo), "it has 28672 x 28672 pixels"));
}

TEST_F(ImageFolderTest, JpegFilesWithTooManyScansAreRefused) {
  const auto photo = jpeg(16, 16, soft, {JCS_RGB, 3, true});
  constexpr unsigned char kStartOfScan = 0xDA;
  constexpr unsigned char kTables = 0xC4;
  const auto scan = marker_at(photo, kStartOfScan);
  const auto end = scan + marker_at(photo.substr(scan), kTables);
  std::string many = photo.substr(0, end);
  for (int i = 0; i < 200; ++i) many += photo.substr(scan, end - scan);
  EXPECT_TRUE(contains(refusal(many + photo.substr(end)), "it has too many scans"));
}

TEST_F(ImageFolderTest, FoldersThatHoldNoClassesAreRefused) {
  EXPECT_TRUE(contains(refusal_to_open(), "it is empty | Put the images of each class"));
  folder_.write("1.png", png(2, 2, colourful));
  EXPECT_TRUE(contains(refusal_to_open(), "it has no folders for classes | Put the images of each class"));
  folder_.write("cat/notes.txt", "");
  EXPECT_TRUE(contains(refusal_to_open(), "/cat: no JPEG or PNG file is in this class"));
  folder_.write("cat/1.webp", "");
  EXPECT_TRUE(contains(refusal_to_open(), "/cat/1.webp: images of this kind are not read | Convert it"));
  const auto missing = open_image_folder("/no/such/folder", {8, 8});
  EXPECT_TRUE(contains(missing.error().message, "/no/such/folder: No such file"));
}

TEST_F(ImageFolderTest, SizesThatNoImageHasAreRefused) {
  for (const auto& size : {ImageSize{0, 8}, ImageSize{8, -1}, ImageSize{kMostPixels, 2}})
    EXPECT_TRUE(contains(open_image_folder(folder_.path(), size).error().message, "images cannot be made"));
}

TEST_F(ImageFolderTest, LinksAreFollowedButNotInCircles) {
  const tests::TempFolder elsewhere;
  const auto file = elsewhere.write("deep/1.png", png(2, 2, plain(1)));
  folder_.write("cat/0.png", png(2, 2, plain(0)));
  fs::create_symlink(file, folder_ / "cat/2.png");
  fs::create_directory_symlink(elsewhere.path(), folder_ / "cat/linked");
  fs::create_directory_symlink(elsewhere / "deep", folder_ / "dog");
  fs::create_directory_symlink("..", folder_ / "cat/up");
  fs::create_directory_symlink(".", folder_ / "cat/here");
  fs::create_directory_symlink(folder_ / "cat", elsewhere / "back");
  fs::create_symlink("itself", folder_ / "cat/itself");
  const auto data = open({1, 1});
  ASSERT_EQ(data->samples(), 4);
  EXPECT_EQ(fetch(*data, {0, 1, 2, 3}).value(), (Bytes{0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1}));
  const std::vector<std::int64_t> all{0, 1, 2, 3};
  std::vector<std::int64_t> labels(4);
  ASSERT_TRUE(data->fetch(1, all, reinterpret_cast<std::byte*>(labels.data())));
  EXPECT_EQ(labels, (std::vector<std::int64_t>{0, 0, 0, 1}));
}

TEST_F(ImageFolderTest, FilesThatAreGoneAreNamed) {
  const auto file = folder_.write("cat/1.png", png(2, 2, colourful));
  const auto data = open({2, 2});
  fs::remove(file);
  EXPECT_TRUE(contains(fetch(*data, {0}).error().message, "/cat/1.png: No such file"));
  fs::create_symlink("nowhere", file);
  EXPECT_TRUE(contains(refusal_to_open(), "/cat/1.png: it is no file, or a link to one that is gone"));
}

/// Pictures of many sizes and kinds, three of them in each class.
void fill(const tests::TempFolder& folder, int count) {
  for (int i = 0; i < count; ++i) {
    const auto name = std::to_string(i / 3) + "/" + std::to_string(i % 3);
    const Painter painter = [i](int row, int column, int channel) { return colourful(row + i, column, channel); };
    if (i % 2 == 0) {
      folder.write(name + ".png", png(10 + i * 7, 90 - i * 3, painter));
    } else {
      folder.write(name + ".jpg", jpeg(10 + i * 9, 90 - i * 2, painter, {JCS_RGB, 3, i % 3 == 0}));
    }
  }
}

TEST_F(ImageFolderTest, SeveralThreadsGetTheSameAsOne) {
  fill(folder_, 18);
  folder_.write("9/broken.jpg", "text");
  const auto data = open({24, 32});
  std::vector<std::int64_t> all(18);
  std::iota(all.begin(), all.end(), 0);
  const auto alone = fetch(*data, all);
  ASSERT_TRUE(alone) << alone.error().message;
  std::vector<int> same(8);
  {
    std::vector<std::jthread> threads;
    for (auto& is_same : same) {
      threads.emplace_back([&] {
        is_same = 1;
        for (int round = 0; round < 5; ++round) {
          const auto got = fetch(*data, all);
          if (!got || *got != *alone || fetch(*data, {18})) is_same = 0;
        }
      });
    }
  }
  EXPECT_EQ(same, std::vector<int>(8, 1));
}

TEST_F(ImageFolderTest, TheLoaderHandsOutPicturesWithTheirLabels) {
  fill(folder_, 12);
  const auto data = open({24, 32});
  Loader loader(*data, {.batch = 4, .threads = 3, .shuffled = true, .seed = 7});
  const auto sequence = Order(12, true, 7).epoch(0);
  for (std::size_t first = 0; first < 12; first += 4) {
    const auto batch = loader.next();
    ASSERT_TRUE(batch && *batch);
    const auto samples = sequence.part(first, first + 4);
    const auto* pixels = reinterpret_cast<const std::uint8_t*>((*batch)->field(0));
    EXPECT_EQ(Bytes(pixels, pixels + data->fields()[0].sample_bytes() * 4), *fetch(*data, samples));
    const auto* labels = reinterpret_cast<const std::int64_t*>((*batch)->field(1));
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(labels[i], samples[i] / 3);
  }
  EXPECT_FALSE(loader.next()->has_value());
}

TEST_F(ImageFolderTest, TheLoaderTellsWhichFileIsBroken) {
  folder_.write("cat/1.jpg", jpeg(20, 20, soft).substr(0, 300));
  const auto data = open({8, 8});
  Loader loader(*data, {.batch = 1});
  EXPECT_TRUE(contains(loader.next().error().message, "/cat/1.jpg: it cannot be decoded"));
}

}  // namespace
}  // namespace fullwatt::engine
