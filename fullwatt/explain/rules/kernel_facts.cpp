#include "fullwatt/explain/rules/kernel_facts.hpp"

#include <map>

namespace fullwatt::explain {

KernelSum kernels_where(const Case& examined, const KernelTest& test) {
  KernelSum sum;
  double longest = 0;
  for (const auto& kernel : examined.evidence.gpu_time.kernels) {
    if (!test(kernel)) continue;
    sum.ms += kernel.ms;
    sum.count += kernel.count;
    if (kernel.ms <= longest) continue;
    longest = kernel.ms;
    sum.longest = kernel.name;
  }
  return sum;
}

Change scaled_where(const Case& examined, const KernelTest& test, double factor) {
  std::map<std::string_view, double> all;
  std::map<std::string_view, double> chosen;
  for (const auto& kernel : examined.evidence.gpu_time.kernels) {
    all[kernel.kind.kind] += kernel.ms;
    if (test(kernel)) chosen[kernel.kind.kind] += kernel.ms;
  }
  // A change is told by kind: where only some kernels of a kind are meant, all of them are changed by the mean.
  Change change;
  for (const auto& [kind, ms] : chosen) {
    if (ms > 0) change += Change::scaled(kind, "", 1 - (1 - factor) * ms / all[kind]);
  }
  return change;
}

KernelTest of_kind(std::string_view kind) {
  return [kind](const KernelUse& kernel) { return kernel.kind.kind == kind; };
}

bool multiplies(const KernelUse& kernel) {
  return kernel.kind.kind == "matmul" || kernel.kind.kind == "convolution" || kernel.kind.kind == "rnn";
}

}  // namespace fullwatt::explain
