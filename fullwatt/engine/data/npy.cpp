#include "fullwatt/engine/data/npy.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"

namespace fullwatt::engine {
namespace {

using base::Error;

struct Kind {
  Dtype dtype;
  std::string_view code;  ///< NumPy's, without the byte order
  std::size_t bytes;
  std::string_view name;
};
constexpr std::array kKinds{
    Kind{Dtype::boolean, "b1", 1, "bool"},    Kind{Dtype::int8, "i1", 1, "int8"},
    Kind{Dtype::uint8, "u1", 1, "uint8"},     Kind{Dtype::int16, "i2", 2, "int16"},
    Kind{Dtype::uint16, "u2", 2, "uint16"},   Kind{Dtype::int32, "i4", 4, "int32"},
    Kind{Dtype::uint32, "u4", 4, "uint32"},   Kind{Dtype::int64, "i8", 8, "int64"},
    Kind{Dtype::uint64, "u8", 8, "uint64"},   Kind{Dtype::float16, "f2", 2, "float16"},
    Kind{Dtype::float32, "f4", 4, "float32"}, Kind{Dtype::float64, "f8", 8, "float64"},
    Kind{Dtype::bfloat16, "", 2, "bfloat16"},  // NumPy has none
};
const Kind& kind_of(Dtype dtype) {
  return *std::ranges::find(kKinds, dtype, &Kind::dtype);
}

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kMostHeader = 1U << 20U;  ///< far more than a shape of 32 dimensions takes
constexpr std::size_t kMostDimensions = 32;     ///< NumPy's own limit until version 2

std::unexpected<Error> refuse(std::string message, std::string remedy = "Save it again: np.save(path, array)") {
  return base::fail(Error::Kind::bad_input, std::move(message), std::move(remedy));
}

/// Reads the header's text: a dictionary as Python prints it, with three known keys.
class Dictionary {
 public:
  explicit Dictionary(std::string_view text) : text_(text) {}

  struct Entries {
    std::optional<std::string> descr;
    std::optional<bool> fortran_order;
    std::optional<std::vector<std::int64_t>> shape;
    bool has_fields = false;  ///< the descr is a list: a structured array
  };

  std::optional<Entries> read() {
    Entries entries;
    if (!take('{')) return std::nullopt;
    while (!take('}')) {
      const auto key = quoted();
      if (!key || !take(':') || !value(*key, entries)) return std::nullopt;
      if (entries.has_fields) return entries;
      take(',');
    }
    return entries;
  }

 private:
  bool value(const std::string& key, Entries& entries) {
    if (key == "descr") {
      entries.has_fields = peek() == '[';
      if (!entries.has_fields) entries.descr = quoted();
      return entries.has_fields || entries.descr.has_value();
    }
    if (key == "fortran_order") {
      entries.fortran_order = truth();
      return entries.fortran_order.has_value();
    }
    if (key != "shape") return false;
    entries.shape = numbers();
    return entries.shape.has_value();
  }

  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char wanted) {
    if (peek() != wanted) return false;
    ++at_;
    return true;
  }
  std::optional<std::string> quoted() {
    const char mark = peek();
    if (mark != '\'' && mark != '"') return std::nullopt;
    const auto end = text_.find(mark, at_ + 1);
    if (end == std::string_view::npos) return std::nullopt;
    std::string found(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return found;
  }
  std::optional<bool> truth() {
    peek();
    for (const auto& [word, value] : {std::pair{"True", true}, std::pair{"False", false}}) {
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += std::strlen(word);
      return value;
    }
    return std::nullopt;
  }
  std::optional<std::vector<std::int64_t>> numbers() {
    if (!take('(')) return std::nullopt;
    std::vector<std::int64_t> found;
    while (!take(')')) {
      const auto start = (peek(), at_);
      while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
      const auto number = base::number<std::int64_t>(std::string(text_.substr(start, at_ - start)));
      if (!number || found.size() >= kMostDimensions) return std::nullopt;
      found.push_back(*number);
      if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // as Python 2 wrote it
      take(',');
    }
    return found;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

base::Result<Dtype> parse_dtype(const std::string& descr) {
  const char order = descr.empty() ? '\0' : descr.front();
  if (order == '>')
    return refuse("its numbers are big-endian (" + base::printable(descr, 20) + ")",
                  "Save it again: a = np.load(path); np.save(path, a.astype(a.dtype.newbyteorder('<')))");
  const auto code = order == '<' || order == '|' || order == '=' ? std::string_view(descr).substr(1) : descr;
  const auto kind = std::ranges::find(kKinds, code, &Kind::code);
  if (kind != kKinds.end() && !code.empty()) return kind->dtype;
  return refuse("its numbers are of the type " + base::printable(descr, 20) + ", which is not known here",
                "Save it as booleans, integers or floats of 16 to 64 bits.");
}

/// The product of a shape and the size of a number; nothing where it does not fit.
std::optional<std::size_t> product(const std::vector<std::int64_t>& shape, std::size_t bytes) {
  constexpr auto kMost = static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max());
  for (const auto length : shape) {
    const auto factor = static_cast<std::size_t>(length);
    if (factor != 0 && bytes > kMost / factor) return std::nullopt;
    bytes *= factor;
  }
  return bytes;
}

}  // namespace

std::size_t bytes_of(Dtype dtype) {
  return kind_of(dtype).bytes;
}

std::string_view to_string(Dtype dtype) {
  return kind_of(dtype).name;
}

std::size_t NpyHeader::data_bytes() const {
  return product(shape, bytes_of(dtype)).value_or(0);
}

base::Result<NpyHeader> parse_npy_header(std::string_view start) {
  constexpr std::size_t kVersionAt = 6;
  constexpr std::size_t kLengthAt = 8;
  if (!start.starts_with(kMagic)) return refuse("it is no .npy file");
  if (start.size() < kLengthAt + 2) return refuse("it ends within its header");
  const auto major = static_cast<unsigned char>(start[kVersionAt]);
  if (major < 1 || major > 3)
    return refuse(fmt::format("it is of version {} of the format, and 1 to 3 are known", major));
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  if (start.size() < kLengthAt + length_bytes) return refuse("it ends within its header");
  std::size_t length = 0;
  for (std::size_t i = 0; i < length_bytes; ++i)
    length |= static_cast<std::size_t>(static_cast<unsigned char>(start[kLengthAt + i])) << (8 * i);
  const auto text_at = kLengthAt + length_bytes;
  if (length > kMostHeader || start.size() < text_at + length) return refuse("it ends within its header");
  const auto entries = Dictionary(start.substr(text_at, length)).read();
  if (entries && entries->has_fields)
    return refuse("it holds a structured array", "Save each field as a file of its own.");
  if (!entries || !entries->descr || !entries->fortran_order || !entries->shape)
    return refuse("its header cannot be read: " + base::printable(std::string(start.substr(text_at, length)), 120));
  const auto dtype = parse_dtype(*entries->descr);
  if (!dtype) return std::unexpected(dtype.error());
  if (*entries->fortran_order && entries->shape->size() > 1)
    return refuse("it is stored column by column (Fortran order)",
                  "Save it again: np.save(path, np.ascontiguousarray(np.load(path)))");
  if (!product(*entries->shape, bytes_of(*dtype))) return refuse("its shape is larger than any file");
  return NpyHeader{*dtype, *entries->shape, text_at + length};
}

}  // namespace fullwatt::engine
