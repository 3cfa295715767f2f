#include "fullwatt/engine/data/image.hpp"

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/engine/data/image_decoder.hpp"

namespace fullwatt::engine {
namespace {

using base::Error;

constexpr std::string_view kJpegMagic = "\xFF\xD8\xFF";
constexpr std::string_view kPngMagic = "\x89PNG\r\n\x1A\n";

std::unique_ptr<ImageDecoder> decoder_for(std::span<const std::uint8_t> file) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (text.starts_with(kJpegMagic)) return jpeg_decoder(file);
  if (text.starts_with(kPngMagic)) return png_decoder(file);
  return nullptr;
}

std::unexpected<Error> damaged(const ImageDecoder& decoder) {
  return base::fail(Error::Kind::bad_input, "it cannot be decoded: " + base::printable(decoder.reason(), 200),
                    "It is damaged or cut off: write it again, or take it out of the folder.");
}

}  // namespace

base::Result<void> decode_image(std::span<const std::uint8_t> file, ImageSize wanted, Image& image) {
  const auto decoder = decoder_for(file);
  if (decoder == nullptr)
    return base::fail(Error::Kind::bad_input, file.empty() ? "it is empty" : "it is no JPEG or PNG file",
                      "Write it again as one of them, or take it out of the folder.");
  if (!decoder->read_sizes(wanted, image)) return damaged(*decoder);
  if (image.file_size.pixels() > kMostPixels)
    return base::fail(Error::Kind::bad_input,
                      fmt::format("it has {} x {} pixels, and at most {} are read", image.file_size.width,
                                  image.file_size.height, kMostPixels),
                      "Scale it down, or take it out of the folder.");
  image.colours.resize(static_cast<std::size_t>(image.size.pixels()) * 3);
  if (!decoder->read_colours(image.colours.data())) return damaged(*decoder);
  return {};
}

}  // namespace fullwatt::engine
