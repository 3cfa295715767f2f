// A spool comes from a process that may have been killed at any moment, or from somebody else's machine.

#include <cstdint>
#include <string>
#include <string_view>

#include "tests/fuzz/require.hpp"

#include "fullwatt/record/format.hpp"
#include "fullwatt/record/spool_reader.hpp"

/// The input's first bytes become the header's counts, the rest the records: a whole header would hardly ever be met by
/// chance.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fullwatt::record;
  std::string bytes(kHeaderBytes, '\0');
  bytes.replace(0, kMagic.size(), kMagic.data(), kMagic.size());
  bytes[offsetof(Header, version)] = kFormatVersion;
  const auto counts = std::min<std::size_t>(size, 16);
  for (std::size_t i = 0; i < counts; ++i)
    bytes[offsetof(Header, trend_capacity) + 8 * (i % 8) + i / 8] = static_cast<char>(data[i]);
  bytes.append(reinterpret_cast<const char*>(data) + counts, size - counts);
  const auto process = parse_spool(bytes);
  if (process) {
    for (const auto& sample : process->samples) REQUIRE(sample.stack < process->stacks.size());
  }
  const auto plain = parse_spool(std::string_view(reinterpret_cast<const char*>(data), size));
  static_cast<void>(plain);
  return 0;
}
