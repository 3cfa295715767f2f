#include "fullwatt/engine/augment.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

namespace fullwatt::engine {
namespace {

at::Tensor for_channels(const std::vector<double>& values, at::Device device) {
  return at::tensor(values, at::kFloat).view({-1, 1, 1}).to(device);
}

at::TensorOptions numbers_on(const at::Tensor& pictures) {
  return at::TensorOptions().device(pictures.device()).dtype(at::kFloat);
}

/// A factor for each picture.
at::Tensor drawn(const Range& range, const at::Tensor& pictures) {
  return at::rand({pictures.size(0), 1, 1, 1}, numbers_on(pictures)) * (range.most - range.least) + range.least;
}

/// For each picture, from where along one dimension each of its pixels is taken; outside of it where it was shifted.
at::Tensor places(const at::Tensor& pictures, std::int64_t dimension, std::int64_t shift) {
  const auto whole = numbers_on(pictures).dtype(at::kLong);
  const auto all = at::arange(pictures.size(dimension), whole).unsqueeze(0);
  if (shift == 0) return all;
  return all + at::randint(-shift, shift + 1, {pictures.size(0), 1}, whole);
}

/// Beyond an edge the picture goes on backwards, the edge itself not repeated.
at::Tensor reflected(const at::Tensor& places, std::int64_t size) {
  return (size - 1) - ((size - 1) - places.abs()).abs();
}

}  // namespace

Augmentation::Augmentation(const AugmentConfig& config, const Normalisation& normalisation, at::Device device)
    : config_(config) {
  if (normalisation.mean.empty()) return;
  mean_ = for_channels(normalisation.mean, device);
  deviation_ = for_channels(normalisation.deviation, device);
}

at::Tensor Augmentation::moved(const at::Tensor& pictures) const {
  if (config_.flip == 0 && config_.shift == 0) return pictures;
  const auto height = pictures.size(2);
  const auto width = pictures.size(3);
  auto rows = places(pictures, 2, config_.shift);
  auto columns = places(pictures, 3, config_.shift);
  if (config_.flip > 0) {
    const auto is_flipped = at::rand({pictures.size(0), 1}, numbers_on(pictures)) < config_.flip;
    columns = at::where(is_flipped, (width - 1) - columns, columns);
  }
  const auto from = reflected(rows, height).unsqueeze(2) * width + reflected(columns, width).unsqueeze(1);
  const auto pixels = pictures.flatten(2);
  const auto taken = pixels.gather(2, from.flatten(1).unsqueeze(1).expand(pixels.sizes())).view(pictures.sizes());
  if (config_.shift == 0 || config_.padding == "reflection") return taken;
  const auto is_inside = at::logical_and(rows.eq(reflected(rows, height)).unsqueeze(2),
                                         columns.eq(reflected(columns, width)).unsqueeze(1));
  return at::where(is_inside.unsqueeze(1), taken, 0);
}

at::Tensor Augmentation::coloured(const at::Tensor& pictures, bool is_limited) const {
  const auto limited = [&](const at::Tensor& changed) { return is_limited ? changed.clamp(0, 1) : changed; };
  auto found = pictures;
  if (config_.brightness.changes()) found = limited(found * drawn(config_.brightness, found));
  if (config_.contrast.changes()) {
    const auto middle = found.mean({1, 2, 3}, /*keepdim=*/true);
    found = limited((found - middle) * drawn(config_.contrast, found) + middle);
  }
  if (config_.noise > 0) found = limited(found + at::randn_like(found) * config_.noise);
  return mean_.defined() ? (found - mean_).div_(deviation_) : found;
}

}  // namespace fullwatt::engine
