#include "fullwatt/engine/kernels/verification.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/sin.h>

#include "fullwatt/base/text.hpp"

namespace fullwatt::engine {
namespace {

constexpr const char* kReport = "Torch's own are taken; please report it with the card and its driver.";
constexpr double kFewRoundings = 1e-4;      // of the largest number, in float32
constexpr double kFewHalfRoundings = 0.02;  // in the types of half its size

}  // namespace

at::Tensor waves(at::IntArrayRef sizes, double length, const KernelSet& kernels) {
  const auto places = at::arange(c10::multiply_integers(sizes), at::TensorOptions(kernels.device()).dtype(at::kFloat));
  return (at::sin(places * length) + 0.3).view(sizes).to(kernels.numbers());
}

base::Result<void> compare(const KernelSet& kernels, const char* what, const at::Tensor& ours,
                           const at::Tensor& torchs) {
  const double off = (ours.to(torchs.scalar_type()) - torchs).abs().max().item<double>();
  const double most =
      torchs.abs().max().item<double>() * (kernels.numbers() == at::kFloat ? kFewRoundings : kFewHalfRoundings);
  if (!(off <= most))
    return base::fail(base::Error::Kind::unavailable, std::string("their ") + what + " are not torch's", kReport);
  return {};
}

std::unexpected<base::Error> refuse_their_problem() {
  return base::fail(base::Error::Kind::unavailable, "they refuse their own problem", kReport);
}

base::Result<void> verified(const std::function<base::Result<void>()>& look) try {
  const at::AutoGradMode with_gradients(true);
  return look();
} catch (const c10::Error& error) {
  return base::fail(base::Error::Kind::unavailable, base::printable(error.what_without_backtrace(), 200));
}

}  // namespace fullwatt::engine
