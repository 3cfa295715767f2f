// A program's own samples as a data set. The engine fetches field by field; so that a sample is made only once, all its
// fields travel as one field of bytes, and are told apart again on the device.

#include <cstring>
#include <utility>
#include <vector>

#include "fullwatt/api/optimized_loader_state.hpp"
#include "fullwatt/api/outcome.hpp"

namespace fullwatt::api {
namespace {

constexpr const char* kPacked = "packed";

struct Part {
  std::string name;
  at::ScalarType type;
  std::vector<std::int64_t> shape;  ///< of one sample
  std::int64_t first = 0;           ///< byte of a sample
  std::int64_t bytes = 0;
};

/// By the first sample.
std::vector<Part> parts_of(const Fields& sample) {
  std::vector<Part> parts;
  std::int64_t first = 0;
  for (const auto& [name, tensor] : sample) {
    const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
    parts.push_back({name, tensor.scalar_type(), tensor.sizes().vec(), first, bytes});
    first += bytes;
  }
  return parts;
}

Fields unpacked(const std::vector<Part>& parts, const at::Tensor& packed) {
  Fields fields;
  for (const auto& part : parts) {
    auto shape = part.shape;
    shape.insert(shape.begin(), packed.size(0));
    fields.emplace(part.name, packed.narrow(1, part.first, part.bytes).contiguous().view(part.type).view(shape));
  }
  return fields;
}

class SourceData final : public engine::DataSet {
 public:
  SourceData(SampleSource source, std::vector<Part> parts) : source_(std::move(source)), parts_(std::move(parts)) {
    samples_ = source_.samples;
    fields_.push_back({kPacked, engine::Dtype::uint8, {parts_.back().first + parts_.back().bytes}});
  }

  base::Result<void> fetch(std::size_t, std::span<const std::int64_t> samples, std::byte* to) const override {
    for (const auto index : samples) {
      if (const auto packed = pack(index, to); !packed) return packed;
      to += fields_.front().sample_bytes();
    }
    return {};
  }

 private:
  base::Result<void> pack(std::int64_t index, std::byte* to) const {
    const auto refuse = [&](const std::string& what) {
      return base::fail(base::Error::Kind::bad_input, "sample " + std::to_string(index) + ": " + what,
                        "Every sample needs the same fields, of the same shapes and types.");
    };
    try {
      const auto sample = source_.sample(index);
      for (const auto& part : parts_) {
        const auto field = sample.find(part.name);
        if (field == sample.end()) return refuse("there is no field " + base::printable(part.name, 100));
        if (field->second.sizes() != part.shape || field->second.scalar_type() != part.type)
          return refuse("the field " + base::printable(part.name, 100) + " is of another shape or type");
        const auto tensor = field->second.cpu().contiguous();
        std::memcpy(to + part.first, tensor.const_data_ptr(), static_cast<std::size_t>(part.bytes));
      }
      return {};
    } catch (const std::exception& error) {  // of the program's function
      return refuse(base::printable(error.what(), 300));
    }
  }

  SampleSource source_;
  std::vector<Part> parts_;
};

}  // namespace

Samples from_source(SampleSource source) {
  if (source.samples <= 0 || !source.sample)
    raise({base::Error::Kind::bad_input, "the source has no samples", "Give their number, and a function for one."});
  const auto first = source.sample(0);
  auto parts = parts_of(first);
  if (parts.empty() || parts.back().first + parts.back().bytes == 0)
    raise({base::Error::Kind::bad_input, "a sample has no fields", "Give a tensor for each that the loss uses."});
  Samples samples;
  samples.unpack = [parts](const Fields& batch) { return unpacked(parts, batch.at(kPacked)); };
  samples.data = std::make_unique<SourceData>(std::move(source), std::move(parts));
  return samples;
}

}  // namespace fullwatt::api
