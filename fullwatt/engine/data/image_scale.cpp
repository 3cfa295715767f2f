#include <algorithm>
#include <cmath>

#include "fullwatt/engine/data/image.hpp"

namespace fullwatt::engine {
namespace {

/// Weights are whole numbers of this fraction, as PIL's: 8 bits of colour and 2 to spare are left of 32.
constexpr int kWeightBits = 22;
constexpr std::int32_t kOne = 1 << kWeightBits;
constexpr std::int32_t kHalf = kOne / 2;

std::uint8_t colour_of(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::min(sum >> kWeightBits, 255));
}

/// The size that a picture is scaled to, and where in that the wanted part begins.
struct Window {
  ImageSize scaled;
  std::int64_t top;
  std::int64_t left;
};

/// Python's round() of the half, and so torchvision's: 0.5 becomes 0, 1.5 becomes 2.
std::int64_t margin(std::int64_t whole, std::int64_t part) {
  const auto rest = whole - part;
  return rest / 2 + (rest % 4 == 3 ? 1 : 0);
}

Window window_of(ImageSize file, ImageSize wanted) {
  const bool fits_in_height = wanted.height * file.width >= wanted.width * file.height;
  const auto scaled = fits_in_height ? ImageSize{wanted.height, file.width * wanted.height / file.height}
                                     : ImageSize{file.height * wanted.width / file.width, wanted.width};
  return {scaled, margin(scaled.height, wanted.height), margin(scaled.width, wanted.width)};
}

/// One side of a picture, before and after.
struct Side {
  double length;  ///< in pixels as they are stored; a reduced picture ends within its last one
  std::int64_t stored;
  std::int64_t scaled;
  std::int64_t first;  ///< of the part that is wanted
  std::int64_t count;
};

/// Which stored pixels make a wanted one, and how much each of them counts.
struct Mix {
  std::size_t first;
  std::span<const std::int32_t> weights;
};

/// One for each wanted pixel of a side.
class Mixes {
 public:
  explicit Mixes(const Side& side)
      : scale_(side.length / static_cast<double>(side.scaled)),
        reach_(std::max(scale_, 1.0)),
        weights_(static_cast<std::size_t>(side.count) * most_weights()) {
    mixes_.reserve(static_cast<std::size_t>(side.count));
    auto free = std::span(weights_);
    for (std::int64_t i = 0; i < side.count; ++i) {
      const auto mix = make(side.first + i, side.stored, free);
      free = free.subspan(mix.weights.size());
      mixes_.push_back(mix);
    }
  }
  Mixes(const Mixes&) = delete;
  Mixes& operator=(const Mixes&) = delete;

  const std::vector<Mix>& all() const { return mixes_; }
  std::size_t first_stored() const { return mixes_.front().first; }
  std::size_t stored() const { return mixes_.back().first + mixes_.back().weights.size() - first_stored(); }

 private:
  std::size_t most_weights() const { return static_cast<std::size_t>(std::ceil(reach_)) * 2 + 1; }

  Mix make(std::int64_t position, std::int64_t stored, std::span<std::int32_t> free) const {
    const auto centre = (static_cast<double>(position) + 0.5) * scale_;
    const auto first = std::max<std::int64_t>(0, std::lround(centre - reach_));
    const auto end = std::min(stored, std::lround(centre + reach_));
    const auto part = [&](std::int64_t pixel) {
      return std::max(0.0, 1.0 - std::abs((static_cast<double>(pixel) - centre + 0.5) / reach_));
    };
    double sum = 0;
    for (auto i = first; i < end; ++i) sum += part(i);
    const auto weights = free.first(static_cast<std::size_t>(end - first));
    for (auto i = first; i < end; ++i)
      weights[static_cast<std::size_t>(i - first)] = static_cast<std::int32_t>(std::lround(part(i) / sum * kOne));
    return {static_cast<std::size_t>(first), weights};
  }

  double scale_;
  double reach_;  ///< of the triangle to either side of its middle
  std::vector<std::int32_t> weights_;
  std::vector<Mix> mixes_;
};

/// One row of the picture, scaled in width.
void scale_row(const std::uint8_t* row, const std::vector<Mix>& columns, std::uint8_t* red, std::size_t plane) {
  for (const auto& column : columns) {
    const auto* pixel = row + column.first * 3;
    std::int32_t sums[3] = {kHalf, kHalf, kHalf};
    for (const auto weight : column.weights) {
      for (auto& sum : sums) sum += *pixel++ * weight;
    }
    for (std::size_t i = 0; i < 3; ++i) red[i * plane] = colour_of(sums[i]);
    ++red;
  }
}

/// Rows of one colour mixed into one.
void mix_rows(const std::uint8_t* first, std::span<const std::int32_t> weights, std::vector<std::int32_t>& sums,
              std::uint8_t* to) {
  std::ranges::fill(sums, kHalf);
  for (const auto weight : weights) {
    for (auto& sum : sums) sum += *first++ * weight;
  }
  std::ranges::transform(sums, to, colour_of);
}

void scale(const Image& image, const Window& window, ImageSize wanted, std::uint8_t* planes) {
  const auto length = [&](std::int64_t pixels) { return static_cast<double>(pixels) / image.reduction; };
  const Mixes columns(
      {length(image.file_size.width), image.size.width, window.scaled.width, window.left, wanted.width});
  const Mixes rows(
      {length(image.file_size.height), image.size.height, window.scaled.height, window.top, wanted.height});
  const auto width = columns.all().size();
  const auto first = rows.first_stored();
  const auto count = rows.stored();
  std::vector<std::uint8_t> narrow(3 * count * width);  // scaled in width only; PIL rounds there as well
  for (std::size_t row = 0; row < count; ++row)
    scale_row(image.colours.data() + (first + row) * static_cast<std::size_t>(image.size.width) * 3, columns.all(),
              narrow.data() + row * width, count * width);
  std::vector<std::int32_t> sums(width);
  for (std::size_t colour = 0; colour < 3; ++colour) {
    for (const auto& row : rows.all()) {
      mix_rows(narrow.data() + (colour * count + row.first - first) * width, row.weights, sums, planes);
      planes += width;
    }
  }
}

void cut(const Image& image, const Window& window, ImageSize wanted, std::uint8_t* planes) {
  for (std::int64_t colour = 0; colour < 3; ++colour) {
    for (std::int64_t row = window.top; row < window.top + wanted.height; ++row) {
      const auto* from = image.colours.data() + (row * image.size.width + window.left) * 3 + colour;
      for (std::int64_t i = 0; i < wanted.width; ++i, from += 3) *planes++ = *from;
    }
  }
}

}  // namespace

void scale_and_cut(const Image& image, ImageSize wanted, std::uint8_t* planes) {
  const auto window = window_of(image.file_size, wanted);
  if (window.scaled == image.size && image.reduction == 1) return cut(image, window, wanted, planes);
  scale(image, window, wanted, planes);
}

}  // namespace fullwatt::engine
