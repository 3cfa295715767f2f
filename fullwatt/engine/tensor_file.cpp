#include "fullwatt/engine/tensor_file.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>
#include <zlib.h>

#include "fullwatt/base/text.hpp"

namespace fullwatt::engine {
namespace {

namespace fs = std::filesystem;
using base::Error;
using nlohmann::json;

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kAlignment = 8;
constexpr std::size_t kMostHeader = 100U << 20U;  ///< the format's own limit
constexpr const char* kMetadata = "__metadata__";
constexpr const char* kChecksum = "crc32";  ///< of the data alone in files without a schema, which came before
constexpr const char* kSchemaName = "fullwatt_schema";
constexpr int kSchema = 2;

constexpr std::array<std::pair<Dtype, std::string_view>, 13> kNames{{{Dtype::boolean, "BOOL"},
                                                                     {Dtype::int8, "I8"},
                                                                     {Dtype::uint8, "U8"},
                                                                     {Dtype::int16, "I16"},
                                                                     {Dtype::uint16, "U16"},
                                                                     {Dtype::int32, "I32"},
                                                                     {Dtype::uint32, "U32"},
                                                                     {Dtype::int64, "I64"},
                                                                     {Dtype::uint64, "U64"},
                                                                     {Dtype::float16, "F16"},
                                                                     {Dtype::float32, "F32"},
                                                                     {Dtype::float64, "F64"},
                                                                     {Dtype::bfloat16, "BF16"}}};

std::string_view name_of(Dtype dtype) {
  return std::ranges::find(kNames, dtype, [](const auto& entry) { return entry.first; })->second;
}

/// Of a text and the tensors behind it.
std::string checksum(std::string_view text, const std::vector<TensorView>& tensors) {
  auto sum = ::crc32_z(::crc32_z(0, nullptr, 0), reinterpret_cast<const Bytef*>(text.data()), text.size());
  for (const auto& tensor : tensors) {
    if (tensor.bytes() > 0)  // to zlib a null pointer means to begin again
      sum = ::crc32_z(sum, reinterpret_cast<const Bytef*>(tensor.data), tensor.bytes());
  }
  return fmt::format("{:08x}", sum);
}

std::string header_of(const std::vector<TensorView>& tensors, Metadata metadata) {
  metadata[kSchemaName] = std::to_string(kSchema);
  json header{{kMetadata, metadata}};
  std::size_t offset = 0;
  for (const auto& tensor : tensors) {
    header[tensor.name] = {
        {"dtype", name_of(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {offset, offset + tensor.bytes()}}};
    offset += tensor.bytes();
  }
  header[kMetadata][kChecksum] = checksum(header.dump(), tensors);
  auto text = header.dump();
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  return text;
}

/// A file that is thrown away unless it is finished.
class Draft {
 public:
  explicit Draft(std::string path)
      : path_(std::move(path)),
        descriptor_(
            ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH)) {}
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;
  ~Draft() {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (!is_finished_) ::unlink(path_.c_str());
  }

  bool write(const void* start, std::size_t bytes) {
    const auto* from = static_cast<const char*>(start);
    while (bytes > 0 && descriptor_ >= 0) {
      const auto written = ::write(descriptor_, from, bytes);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return false;
      from += written;
      bytes -= static_cast<std::size_t>(written);
    }
    return descriptor_ >= 0;
  }
  /// On the disk, in the place of what has that name.
  bool finish(const std::string& path) {
    is_finished_ = ::fsync(descriptor_) == 0 && ::rename(path_.c_str(), path.c_str()) == 0;
    return is_finished_;
  }

 private:
  std::string path_;
  int descriptor_;
  bool is_finished_ = false;
};

/// That the name is there after a loss of power, too.
void sync_folder(const std::string& path) {
  const auto folder = fs::path(path).parent_path();
  const int descriptor = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

std::unexpected<Error> refuse(std::string message,
                              std::string remedy = "Take an earlier one, or write it again where it came from.") {
  return base::fail(Error::Kind::bad_input, std::move(message), std::move(remedy));
}

/// One entry of the header.
base::Result<TensorView> tensor_of(const std::string& name, const json& entry, std::string_view data) {
  const auto wrong = refuse("it is cut off, or its header is wrong");
  const auto type = entry.at("dtype").get<std::string>();
  const auto* const dtype = std::ranges::find(kNames, type, [](const auto& known) { return known.second; });
  if (dtype == kNames.end())
    return refuse(
        fmt::format("'{}' is of the type {}, which is not read", base::printable(name, 100), base::printable(type, 20)),
        "Save it as float32, float16 or bfloat16, or as whole numbers.");
  const auto offsets = entry.at("data_offsets").get<std::vector<std::size_t>>();
  if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > data.size()) return wrong;
  TensorView tensor{name, dtype->first, entry.at("shape").get<std::vector<std::int64_t>>(),
                    reinterpret_cast<const std::byte*>(data.data() + offsets[0])};
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 8;
  std::int64_t product = 1;
  for (const auto length : tensor.shape) {
    if (length < 0 || (length > 0 && product > kMost / length)) return wrong;
    product *= length;
  }
  if (tensor.bytes() != offsets[1] - offsets[0]) return wrong;
  return tensor;
}

/// Files of others have no checksum; ours have one of the header and the data.
base::Result<void> verify(json header, const Metadata& metadata, const std::vector<TensorView>& tensors) {
  const auto schema = metadata.find(kSchemaName);
  const auto told = metadata.find(kChecksum);
  const bool is_first = schema == metadata.end();
  if (!is_first && schema->second != std::to_string(kSchema))
    return refuse(
        fmt::format("it is of the schema {}, and this fullwatt reads {}", base::printable(schema->second, 20), kSchema),
        "Take the fullwatt that wrote it, or a newer one.");
  if (is_first && told == metadata.end()) return {};
  if (!is_first) header[kMetadata].erase(kChecksum);
  if (told == metadata.end() || told->second != checksum(is_first ? "" : header.dump(), tensors))
    return refuse("it does not fit its checksum");
  return {};
}

}  // namespace

std::size_t TensorView::bytes() const {
  std::size_t product = bytes_of(dtype);
  for (const auto length : shape) product *= static_cast<std::size_t>(length);
  return product;
}

base::Result<void> write_tensors(const std::string& path, const std::vector<TensorView>& tensors,
                                 const Metadata& metadata) {
  const auto failed = [&] {
    return base::fail(
        Error::Kind::unavailable, base::printable(path, 300) + " cannot be written: " + std::strerror(errno),
        "Make room, or name another folder under output: folder; the last one that was written is untouched.");
  };
  const auto header = header_of(tensors, metadata);
  const std::uint64_t length = header.size();
  Draft draft(path + ".new");
  bool is_written = draft.write(&length, kLengthBytes) && draft.write(header.data(), header.size());
  for (const auto& tensor : tensors) is_written = is_written && draft.write(tensor.data, tensor.bytes());
  if (!is_written || !draft.finish(path)) return failed();
  sync_folder(path);
  return {};
}

base::Result<std::pair<std::vector<TensorView>, Metadata>> parse_tensors(const std::string& bytes) {
  std::uint64_t length = 0;
  if (bytes.size() < kLengthBytes) return refuse("it is cut off");
  std::memcpy(&length, bytes.data(), kLengthBytes);
  if (length > kMostHeader) return refuse("it is no safetensors file");
  if (bytes.size() - kLengthBytes < length) return refuse("it is cut off");
  const auto start = kLengthBytes + static_cast<std::size_t>(length);
  auto header =
      json::parse(bytes.begin() + kLengthBytes, bytes.begin() + static_cast<std::ptrdiff_t>(start), nullptr, false);
  if (!header.is_object()) return refuse("its header cannot be read");
  std::vector<TensorView> tensors;
  Metadata metadata;
  try {
    for (const auto& [name, entry] : header.items()) {
      if (name == kMetadata) {
        metadata = entry.get<Metadata>();
        continue;
      }
      const auto tensor = tensor_of(name, entry, std::string_view(bytes).substr(start));
      if (!tensor) return std::unexpected(tensor.error());
      tensors.push_back(*tensor);
    }
  } catch (const json::exception&) {
    return refuse("its header cannot be read");
  }
  std::ranges::sort(tensors, {}, &TensorView::data);
  if (const auto verified = verify(std::move(header), metadata, tensors); !verified)
    return std::unexpected(verified.error());
  return std::pair{std::move(tensors), std::move(metadata)};
}

base::Result<TensorFile> TensorFile::open(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file.is_open())
    return base::fail(Error::Kind::not_found, base::printable(path, 300) + " cannot be read: " + std::strerror(errno),
                      "Name a file that is there and may be read.");
  TensorFile found;
  found.bytes_ =
      std::make_shared<const std::string>(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>{});
  auto parsed = parse_tensors(*found.bytes_);
  if (!parsed) {
    parsed.error().message = base::printable(path, 300) + ": " + parsed.error().message;
    return std::unexpected(parsed.error());
  }
  std::tie(found.tensors_, found.metadata_) = *std::move(parsed);
  return found;
}

const TensorView* TensorFile::find(const std::string& name) const {
  const auto at = std::ranges::find(tensors_, name, &TensorView::name);
  return at != tensors_.end() ? &*at : nullptr;
}

}  // namespace fullwatt::engine
