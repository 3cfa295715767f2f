#include "fullwatt/engine/event_file.hpp"

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "fullwatt/base/text.hpp"

namespace fullwatt::engine {
namespace {

using base::Error;

// Field numbers, from event.proto, summary.proto and tensor.proto of TensorFlow.
constexpr std::uint32_t kEventWallTime = 1;
constexpr std::uint32_t kEventStep = 2;
constexpr std::uint32_t kEventFileVersion = 3;
constexpr std::uint32_t kEventSummary = 5;
constexpr std::uint32_t kEventSessionLog = 7;
constexpr std::uint32_t kSessionStatus = 1;
constexpr std::uint32_t kSummaryValue = 1;
constexpr std::uint32_t kValueTag = 1;
constexpr std::uint32_t kValueSimpleValue = 2;
constexpr std::uint32_t kValueTensor = 8;
constexpr std::uint32_t kValueMetadata = 9;
constexpr std::uint32_t kMetadataPluginData = 1;
constexpr std::uint32_t kPluginDataName = 1;
constexpr std::uint32_t kTensorDtype = 1;
constexpr std::uint32_t kTensorShape = 2;
constexpr std::uint32_t kTensorStringValue = 8;

constexpr std::uint64_t kDtypeString = 7;   ///< DT_STRING of types.proto
constexpr std::uint64_t kSessionStart = 1;  ///< SessionLog.START of event.proto
constexpr std::string_view kNoDimensions;   ///< the shape of a single value
constexpr std::string_view kFileVersion = "brain.Event:2";
constexpr std::string_view kTextPlugin = "text";

/// How a protobuf field's value is encoded.
enum class Wire : std::uint32_t { varint = 0, fixed64 = 1, length_delimited = 2, fixed32 = 5 };

template <class Unsigned>
std::string little_endian(Unsigned value) {
  std::string bytes(sizeof(value), '\0');
  for (auto& byte : bytes) {
    byte = static_cast<char>(value & 0xFFU);
    value = static_cast<Unsigned>(value >> 8U);
  }
  return bytes;
}

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80U; value >>= 7U) bytes += static_cast<char>((value & 0x7FU) | 0x80U);
  bytes += static_cast<char>(value);
  return bytes;
}

std::string key(std::uint32_t field, Wire wire) {
  return varint((field << 3U) | std::to_underlying(wire));
}

std::string integer_field(std::uint32_t field, std::uint64_t value) {
  return key(field, Wire::varint) + varint(value);
}

std::string double_field(std::uint32_t field, double value) {
  return key(field, Wire::fixed64) + little_endian(std::bit_cast<std::uint64_t>(value));
}

std::string float_field(std::uint32_t field, float value) {
  return key(field, Wire::fixed32) + little_endian(std::bit_cast<std::uint32_t>(value));
}

std::string bytes_field(std::uint32_t field, std::string_view bytes) {
  return key(field, Wire::length_delimited) + varint(bytes.size()) + std::string(bytes);
}

/// Castagnoli's polynomial, bits reversed; zlib knows only the other one.
constexpr std::array<std::uint32_t, 256> kCrc32cTable = [] {
  constexpr std::uint32_t kPolynomial = 0x82F63B78;
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    auto rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1U) ^ ((rest & 1U) != 0 ? kPolynomial : 0U);
    table[byte] = rest;
  }
  return table;
}();

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t rest = ~0U;
  for (const auto byte : bytes) rest = (rest >> 8U) ^ kCrc32cTable[(rest ^ static_cast<unsigned char>(byte)) & 0xFFU];
  return ~rest;
}

/// TFRecord masks its checksums so that a file of records can itself be a record.
std::string masked_crc32c(std::string_view bytes) {
  constexpr std::uint32_t kMaskDelta = 0xA282EAD8;
  return little_endian(std::rotr(crc32c(bytes), 15) + kMaskDelta);
}

std::string tf_record(std::string_view data) {
  const auto length = little_endian(std::uint64_t{data.size()});
  return length + masked_crc32c(length) + std::string(data) + masked_crc32c(data);
}

std::string wall_time_now() {
  const std::chrono::duration<double> since_1970 = std::chrono::system_clock::now().time_since_epoch();
  return double_field(kEventWallTime, since_1970.count());
}

/// A tag that is no UTF-8 would make the file unreadable from there on.
std::string tag_field(std::string_view tag) {
  return bytes_field(kValueTag, base::printable(tag, tag.size()));
}

std::string summary_event(std::uint64_t step, std::string_view value) {
  return wall_time_now() + integer_field(kEventStep, step) +
         bytes_field(kEventSummary, bytes_field(kSummaryValue, value));
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

/// TensorBoard knows its files by "tfevents" and reads those of one folder in the order of their names.
std::string file_stem() {
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  return fmt::format("events.out.tfevents.{:010}.{}.{}", now.time_since_epoch().count(), host_name(), ::getpid());
}

struct NewFile {
  std::string path;
  int descriptor = -1;
};

/// With the first number after the stem that is free.
NewFile open_new(const std::string& stem) {
  for (int number = 0;; ++number) {
    NewFile file{fmt::format("{}.{}", stem, number)};
    file.descriptor =
        ::open(file.path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH);
    if (file.descriptor >= 0 || errno != EEXIST) return file;
  }
}

bool write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const auto written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace

base::Result<EventFile> EventFile::create(const std::string& folder) {
  auto [path, descriptor] = open_new(folder + "/" + file_stem());
  if (descriptor < 0)
    return base::fail(
        errno == ENOENT ? Error::Kind::not_found : Error::Kind::refused,
        fmt::format("no event file can be made in {}: {}", base::printable(folder, 300), std::strerror(errno)),
        "Name a folder that is there and can be written to under output: folder.");
  EventFile file(std::move(path), descriptor);
  file.append(wall_time_now() + bytes_field(kEventFileVersion, kFileVersion));
  if (file.error_) return std::unexpected(*file.error_);
  return file;
}

EventFile::EventFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

EventFile::EventFile(EventFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      bytes_(other.bytes_),
      error_(std::move(other.error_)) {}

EventFile& EventFile::operator=(EventFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(bytes_, other.bytes_);
  std::swap(error_, other.error_);
  return *this;
}

EventFile::~EventFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void EventFile::restart(std::uint64_t step) {
  append(wall_time_now() + integer_field(kEventStep, step) +
         bytes_field(kEventSessionLog, integer_field(kSessionStatus, kSessionStart)));
}

void EventFile::scalar(std::uint64_t step, std::string_view tag, double value) {
  append(summary_event(step, tag_field(tag) + float_field(kValueSimpleValue, static_cast<float>(value))));
}

void EventFile::text(std::uint64_t step, std::string_view tag, std::string_view text) {
  const auto tensor = integer_field(kTensorDtype, kDtypeString) + bytes_field(kTensorShape, kNoDimensions) +
                      bytes_field(kTensorStringValue, text);
  const auto metadata = bytes_field(kMetadataPluginData, bytes_field(kPluginDataName, kTextPlugin));
  append(
      summary_event(step, tag_field(tag) + bytes_field(kValueMetadata, metadata) + bytes_field(kValueTensor, tensor)));
}

void EventFile::flush() {
  if (!error_ && ::fdatasync(descriptor_) != 0) fail(errno);
}

void EventFile::append(std::string_view event) {
  if (error_) return;
  const auto record = tf_record(event);
  if (write_all(descriptor_, record)) {
    bytes_ += record.size();
  } else {
    fail(errno);
  }
}

void EventFile::fail(int reason) {
  error_ = Error{Error::Kind::unavailable,
                 fmt::format("{} ends early: {}", base::printable(path_, 300), std::strerror(reason)),
                 "Make room, or name another folder under output: folder; the training goes on without its curves."};
  // Half a record is cut off again; where even that fails, TensorBoard passes over it.
  [[maybe_unused]] const auto ignored = ::ftruncate(descriptor_, static_cast<::off_t>(bytes_));
}

}  // namespace fullwatt::engine
