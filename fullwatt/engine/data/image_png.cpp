#include <cstring>

#include <png.h>

#include "fullwatt/engine/data/image_decoder.hpp"

namespace fullwatt::engine {
namespace {

class PngDecoder final : public ImageDecoder {
 public:
  explicit PngDecoder(std::span<const std::uint8_t> file) : rest_(file) {}
  ~PngDecoder() override { png_destroy_read_struct(&png_, &info_, nullptr); }

  bool read_sizes(ImageSize /*wanted*/, Image& image) override {
    return guarded([&] {
      open();
      png_read_info(png_, info_);
      image.file_size = {png_get_image_height(png_, info_), png_get_image_width(png_, info_)};
      image.reduction = 1;
      image.size = image.file_size;
      convert_to_rgb();
      row_bytes_ = png_get_rowbytes(png_, info_);
      if (row_bytes_ != static_cast<std::size_t>(image.size.width) * 3) stop("its colours are of an unknown kind");
    });
  }

  bool read_colours(std::uint8_t* colours) override {
    return guarded([&] {
      const auto height = png_get_image_height(png_, info_);
      for (int pass = 0; pass < passes_; ++pass) {
        for (std::size_t row = 0; row < height; ++row) png_read_row(png_, colours + row * row_bytes_, nullptr);
      }
      png_read_end(png_, nullptr);
    });
  }

 private:
  void open() {
    png_ = png_create_read_struct(
        PNG_LIBPNG_VER_STRING, this,
        [](png_structp png, png_const_charp message) {
          static_cast<PngDecoder*>(png_get_error_ptr(png))->stop(message);
        },
        [](png_structp, png_const_charp) {});
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    if (info_ == nullptr) stop("there is no memory for it");
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);  // texts and profiles are not unpacked
    png_set_read_fn(png_, this, [](png_structp png, png_bytep to, std::size_t bytes) {
      static_cast<PngDecoder*>(png_get_io_ptr(png))->read(to, bytes);
    });
  }
  void read(std::uint8_t* to, std::size_t bytes) {
    if (bytes > rest_.size()) stop("it ends too early");
    std::memcpy(to, rest_.data(), bytes);
    rest_ = rest_.subspan(bytes);
  }
  void convert_to_rgb() {
    png_set_expand(png_);
    png_set_strip_16(png_);
    png_set_strip_alpha(png_);
    png_set_gray_to_rgb(png_);
    passes_ = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
  }

  std::span<const std::uint8_t> rest_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  int passes_ = 1;
  std::size_t row_bytes_ = 0;
};

}  // namespace

std::unique_ptr<ImageDecoder> png_decoder(std::span<const std::uint8_t> file) {
  return std::make_unique<PngDecoder>(file);
}

}  // namespace fullwatt::engine
