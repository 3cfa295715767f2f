#pragma once

#include <span>

namespace fullwatt::tune {

double mean(std::span<const double> values);

/// Of the values from their mean, as far as so many tell. At least two, as for the interval.
double deviation(std::span<const double> values);

/// Half of the interval around the mean that holds the true one in 95 of 100 cases.
double half_interval(std::span<const double> values);

}  // namespace fullwatt::tune
