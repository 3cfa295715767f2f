#include <cstdio>

// clang-format off: the numbers in jerror.h depend on the version that jpeglib.h defines
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include "fullwatt/engine/data/image_decoder.hpp"

namespace fullwatt::engine {
namespace {

/// Progressive files have about ten. Each scan passes over the whole picture, so that many of them in a small file
/// would hold a thread for hours.
constexpr int kMostScans = 100;

/// Warnings after which pixels are missing or wrong; libjpeg would go on with grey.
bool is_damage(int warning) {
  switch (warning) {
    case JWRN_ARITH_BAD_CODE:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_JPEG_EOF:
    case JWRN_MUST_RESYNC:
      return true;
    default:
      return false;
  }
}

/// By how much the file can be reduced while it still covers what is wanted.
int reduction_of(ImageSize file, ImageSize wanted) {
  for (const int reduction : {8, 4, 2}) {
    if (file.height >= wanted.height * reduction && file.width >= wanted.width * reduction) return reduction;
  }
  return 1;
}

/// Rounded like PIL's.
std::uint8_t product_of_parts(int left, int right) {
  const int product = left * right + 128;
  return static_cast<std::uint8_t>((product + (product >> 8)) >> 8);
}

class JpegDecoder final : public ImageDecoder {
 public:
  explicit JpegDecoder(std::span<const std::uint8_t> file) : file_(file) {
    info_.err = jpeg_std_error(&errors_);
    errors_.error_exit = [](j_common_ptr info) { of(info).stop_with_message(); };
    errors_.emit_message = [](j_common_ptr info, int level) {
      if (level < 0 && is_damage(info->err->msg_code)) of(info).stop_with_message();
    };
    info_.client_data = this;
    progress_.progress_monitor = [](j_common_ptr info) { of(info).limit_scans(); };
  }
  ~JpegDecoder() override { jpeg_destroy_decompress(&info_); }

  bool read_sizes(ImageSize wanted, Image& image) override {
    return guarded([&] {
      jpeg_create_decompress(&info_);
      info_.progress = &progress_;
      jpeg_mem_src(&info_, file_.data(), file_.size());
      jpeg_read_header(&info_, TRUE);
      image.file_size = {info_.image_height, info_.image_width};
      image.reduction = reduction_of(image.file_size, wanted);
      info_.scale_num = 1;
      info_.scale_denom = static_cast<unsigned>(image.reduction);
      info_.out_color_space = is_cmyk() ? JCS_CMYK : JCS_RGB;
      jpeg_calc_output_dimensions(&info_);
      image.size = {info_.output_height, info_.output_width};
    });
  }

  bool read_colours(std::uint8_t* colours) override {
    return guarded([&] {
      jpeg_start_decompress(&info_);
      if (is_cmyk()) {
        read_cmyk(colours);
      } else {
        read_rgb(colours);
      }
      jpeg_finish_decompress(&info_);
    });
  }

 private:
  static JpegDecoder& of(j_common_ptr info) { return *static_cast<JpegDecoder*>(info->client_data); }

  [[noreturn]] void stop_with_message() {
    std::array<char, JMSG_LENGTH_MAX> message{};
    errors_.format_message(reinterpret_cast<j_common_ptr>(&info_), message.data());
    stop(message.data());
  }
  void limit_scans() {
    if (info_.input_scan_number > kMostScans) stop("it has too many scans");
  }

  /// libjpeg itself makes no colours of it.
  bool is_cmyk() const { return info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK; }

  void read_rgb(std::uint8_t* colours) {
    for (auto* row = colours; info_.output_scanline < info_.output_height; row += std::size_t{3} * info_.output_width)
      jpeg_read_scanlines(&info_, &row, 1);
  }
  void read_cmyk(std::uint8_t* colours) {
    constexpr unsigned kChannels = 4;
    auto* const rows =
        info_.mem->alloc_sarray(reinterpret_cast<j_common_ptr>(&info_), JPOOL_IMAGE, info_.output_width * kChannels, 1);
    while (info_.output_scanline < info_.output_height) {
      jpeg_read_scanlines(&info_, rows, 1);
      const auto* inks = rows[0];
      for (unsigned column = 0; column < info_.output_width; ++column, inks += kChannels) {
        const int black = inks[3];  // inverted, as are the other three
        for (int i = 0; i < 3; ++i)
          *colours++ = static_cast<std::uint8_t>(black - product_of_parts(255 - inks[i], black));
      }
    }
  }

  std::span<const std::uint8_t> file_;
  jpeg_error_mgr errors_{};
  jpeg_progress_mgr progress_{};
  jpeg_decompress_struct info_{};
};

}  // namespace

std::unique_ptr<ImageDecoder> jpeg_decoder(std::span<const std::uint8_t> file) {
  return std::make_unique<JpegDecoder>(file);
}

}  // namespace fullwatt::engine
