// Files of samples, pictures, tensors and settings from outside: refused with an error, or read within their bounds.

#include <cstdint>
#include <string>
#include <vector>

#include "tests/fuzz/require.hpp"

#include "fullwatt/engine/config.hpp"
#include "fullwatt/engine/data/image.hpp"
#include "fullwatt/engine/data/npy.hpp"
#include "fullwatt/engine/tensor_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fullwatt::engine;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  if (const auto header = parse_npy_header(bytes); header) {
    REQUIRE(header->data_offset <= bytes.size());
  } else {
    REQUIRE(!header.error().message.empty());
  }
  if (const auto parsed = parse_tensors(bytes); parsed) {
    for (const auto& tensor : parsed->first) {
      const auto* start = reinterpret_cast<const char*>(tensor.data);
      REQUIRE(start >= bytes.data() && start + tensor.bytes() <= bytes.data() + bytes.size());
    }
  }
  Image image;
  if (decode_image({data, size}, {64, 64}, image)) {
    REQUIRE(image.colours.size() == static_cast<std::size_t>(3 * image.size.pixels()));
    std::vector<std::uint8_t> planes(3UL * 64 * 64);
    scale_and_cut(image, {64, 64}, planes.data());
  }
  if (const auto config = parse_config(bytes); config) REQUIRE(!settings_of(*config).empty());
  return 0;
}
