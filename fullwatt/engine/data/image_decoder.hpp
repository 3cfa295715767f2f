#pragma once

#include <algorithm>
#include <array>
#include <csetjmp>
#include <memory>
#include <string_view>

#include "fullwatt/engine/data/image.hpp"

namespace fullwatt::engine {

/// A file in the hands of a C library, which leaves its calls by longjmp when it fails. Between the two steps the
/// caller makes room for the colours.
class ImageDecoder {
 public:
  ImageDecoder() = default;
  ImageDecoder(const ImageDecoder&) = delete;
  ImageDecoder& operator=(const ImageDecoder&) = delete;
  virtual ~ImageDecoder() = default;

  /// Fills in everything but the colours.
  virtual bool read_sizes(ImageSize wanted, Image& image) = 0;
  virtual bool read_colours(std::uint8_t* colours) = 0;
  /// Why one of them returned false, in the library's words.
  std::string_view reason() const { return reason_.data(); }

 protected:
  /// Runs calls of the library until one ends in `stop`. Nothing in `work` may need a destructor.
  template <class Work>
  bool guarded(const Work& work) {
    if (setjmp(jump_) != 0) return false;
    work();
    return true;
  }
  [[noreturn]] void stop(std::string_view reason) {
    const auto length = std::min(reason.size(), reason_.size() - 1);
    *std::copy_n(reason.begin(), length, reason_.begin()) = '\0';
    std::longjmp(jump_, 1);
  }

 private:
  std::jmp_buf jump_{};
  std::array<char, 256> reason_{};
};

std::unique_ptr<ImageDecoder> jpeg_decoder(std::span<const std::uint8_t> file);
std::unique_ptr<ImageDecoder> png_decoder(std::span<const std::uint8_t> file);

}  // namespace fullwatt::engine
