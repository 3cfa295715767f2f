#include "fullwatt/tune/mean.hpp"

#include <array>
#include <cmath>
#include <numeric>

namespace fullwatt::tune {
namespace {

/// Student's t: the quantile 0.975 by degrees of freedom (tables of the distribution, such as NIST's
/// handbook 1.3.6.7.2).
double student(std::size_t freedom) {
  constexpr std::array kQuantiles{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
                                  2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
                                  2.080,  2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042};
  return freedom <= kQuantiles.size() ? kQuantiles[freedom - 1] : 1.96 + 2.4 / static_cast<double>(freedom);
}

}  // namespace

double mean(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double deviation(std::span<const double> values) {
  const auto middle = mean(values);
  double sum = 0;
  for (const auto value : values) sum += (value - middle) * (value - middle);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

double half_interval(std::span<const double> values) {
  return student(values.size() - 1) * deviation(values) / std::sqrt(static_cast<double>(values.size()));
}

}  // namespace fullwatt::tune
