#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fullwatt/base/error.hpp"

/// Pictures: from the bytes of a JPEG or PNG file to the colours that a training takes.
namespace fullwatt::engine {

struct ImageSize {
  std::int64_t height = 0;
  std::int64_t width = 0;

  std::int64_t pixels() const { return height * width; }
  bool operator==(const ImageSize&) const = default;
};

/// 16,384 × 16,384: more than cameras have, and 768 MiB of colours.
constexpr std::int64_t kMostPixels = std::int64_t{1} << 28U;

/// Red, green and blue of each pixel, row after row.
struct Image {
  ImageSize file_size;
  int reduction = 1;  ///< pixels of the file, along each side, that one of the colours stands for
  ImageSize size;     ///< of what is here
  std::vector<std::uint8_t> colours;
};

/// Decodes a file; its first bytes tell the format. The colours are those of PIL's convert("RGB"): alpha is dropped, 16
/// bits are cut to 8 (in grey files too, which PIL clips), CMYK is taken as Adobe writes it, EXIF's orientation is not
/// heeded. A JPEG that is at least two, four or eight times as large as wanted along both sides is decoded at that
/// reduction. The image's memory is used again.
base::Result<void> decode_image(std::span<const std::uint8_t> file, ImageSize wanted, Image& image);

/// Scales a picture so that it just covers what is wanted and cuts out the centre, as torchvision's Resize and
/// CenterCrop do, by PIL's bilinear filter: a triangle, widened when shrinking so that every pixel counts. Writes red,
/// then green, then blue.
void scale_and_cut(const Image& image, ImageSize wanted, std::uint8_t* planes);

}  // namespace fullwatt::engine
