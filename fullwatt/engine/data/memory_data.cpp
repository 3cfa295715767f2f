#include "fullwatt/engine/data/memory_data.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"

namespace fullwatt::engine {
namespace {

using base::Error;

std::unexpected<Error> refuse(const std::string& name, std::string_view reason, std::string remedy) {
  return base::fail(Error::Kind::bad_input, fmt::format("the array {} {}", base::printable(name, 100), reason),
                    std::move(remedy));
}

bool fits_into_memory(const MemoryArray& array) {
  auto most = std::numeric_limits<std::int64_t>::max() / static_cast<std::int64_t>(bytes_of(array.dtype));
  for (const auto length : array.shape) most /= std::max<std::int64_t>(1, length);
  return most > 0;
}

base::Result<void> check(const MemoryArray& array) {
  if (array.name.empty())
    return base::fail(Error::Kind::bad_input, "an array has no name", "Name each array as the model asks for it.");
  if (array.shape.empty())
    return refuse(array.name, "holds a single number, no samples", "Its first dimension has to count the samples.");
  if (std::ranges::any_of(array.shape, [](auto length) { return length < 0; }) || !fits_into_memory(array))
    return refuse(array.name, fmt::format("has the impossible shape ({})", fmt::join(array.shape, ", ")),
                  "Give the lengths of its dimensions.");
  if (array.shape.front() == 0) return refuse(array.name, "holds no samples", "Give at least one.");
  if (array.data == nullptr) return refuse(array.name, "has no memory", "Give the address of its first number.");
  return {};
}

class MemoryData final : public DataSet {
 public:
  base::Result<void> add(MemoryArray array) {
    if (const auto checked = check(array); !checked) return checked;
    if (std::ranges::find(fields_, array.name, &Field::name) != fields_.end())
      return refuse(array.name, "is there twice", "Each field of a sample needs a name of its own.");
    if (!fields_.empty() && array.shape.front() != samples_)
      return refuse(array.name,
                    fmt::format("has {} samples, and {} has {}", array.shape.front(),
                                base::printable(fields_.front().name, 100), samples_),
                    "Each sample needs all fields.");
    samples_ = array.shape.front();
    fields_.push_back({std::move(array.name), array.dtype, {array.shape.begin() + 1, array.shape.end()}});
    starts_.push_back(array.data);
    return {};
  }

  base::Result<void> fetch(std::size_t field, std::span<const std::int64_t> samples, std::byte* to) const override {
    const auto bytes = fields_[field].sample_bytes();
    for (const auto sample : samples) {
      std::memcpy(to, starts_[field] + static_cast<std::size_t>(sample) * bytes, bytes);
      to += bytes;
    }
    return {};
  }

 private:
  std::vector<const std::byte*> starts_;
};

}  // namespace

base::Result<std::unique_ptr<DataSet>> in_memory(std::vector<MemoryArray> arrays) {
  if (arrays.empty())
    return base::fail(Error::Kind::bad_input, "there are no arrays", "Give one for each field of a sample.");
  auto data = std::make_unique<MemoryData>();
  for (auto& array : arrays) {
    if (const auto added = data->add(std::move(array)); !added) return std::unexpected(added.error());
  }
  return data;
}

}  // namespace fullwatt::engine
