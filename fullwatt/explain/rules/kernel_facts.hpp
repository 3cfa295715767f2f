#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "fullwatt/explain/rules/rule.hpp"

namespace fullwatt::explain {

using KernelTest = std::function<bool(const KernelUse&)>;

/// Some of a step's kernels.
struct KernelSum {
  double ms = 0;     ///< of a step
  double count = 0;  ///< of a step
  std::string longest;
};
KernelSum kernels_where(const Case& examined, const KernelTest& test);

/// A step in which these kernels take `factor` times as long.
Change scaled_where(const Case& examined, const KernelTest& test, double factor);

/// Kernels of a kind.
KernelTest of_kind(std::string_view kind);
/// Matrix products, convolutions, recurrent layers: what tensor cores can do.
bool multiplies(const KernelUse& kernel);

}  // namespace fullwatt::explain
