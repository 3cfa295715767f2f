#include "fullwatt/engine/gradient_sum.hpp"

#include <algorithm>
#include <ranges>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

namespace fullwatt::engine {
namespace {

constexpr std::size_t kFirstBucketBytes = std::size_t{1} << 20U;  ///< so that sending begins early
constexpr std::int64_t kAlignment = 64;                           ///< in elements: optimizers read whole vectors

std::int64_t aligned(std::int64_t elements) {
  return (elements + kAlignment - 1) / kAlignment * kAlignment;
}

/// A part of a buffer in the form of a parameter, its order in memory included: fused optimizers go by that alone. To
/// autograd it is no view, which could not be detached in place.
at::Tensor part_like(const at::Tensor& buffer, std::int64_t first, const at::Tensor& parameter) {
  const auto part = buffer.narrow(0, first, parameter.numel());
  if (!parameter.is_non_overlapping_and_dense()) return part.view(parameter.sizes()).variable_data();
  return part.as_strided(parameter.sizes(), parameter.strides()).variable_data();
}

}  // namespace

/// Called by autograd when it has added to a parameter's gradient.
class GradientSum::Arrival : public torch::autograd::PostAccumulateGradHook {
 public:
  Arrival(GradientSum& sum, std::size_t part) : sum_(sum), part_(part) {}
  void operator()(const at::Tensor&) override { sum_.arrive(part_); }

 private:
  GradientSum& sum_;
  std::size_t part_;
};

GradientSum::GradientSum(Group& group, const std::vector<at::Tensor>& parameters, std::size_t bucket_bytes)
    : group_(group) {
  for (const auto& parameter : parameters | std::views::reverse) {
    if (parameter.requires_grad()) parts_.push_back({parameter});
  }
  fill_buckets(bucket_bytes);
  make_buffers();
  for (std::size_t i = 0; i < parts_.size(); ++i)
    torch::autograd::impl::set_post_acc_grad_hooks(parts_[i].parameter, std::make_unique<Arrival>(*this, i));
}

GradientSum::~GradientSum() {
  for (const auto& part : parts_) torch::autograd::impl::set_post_acc_grad_hooks(part.parameter, nullptr);
}

void GradientSum::fill_buckets(std::size_t bucket_bytes) {
  std::size_t bytes = 0;
  std::optional<at::ScalarType> type;
  for (auto& part : parts_) {
    const auto limit = buckets_.size() == 1 ? std::min(kFirstBucketBytes, bucket_bytes) : bucket_bytes;
    if (type != part.parameter.scalar_type() || bytes + part.parameter.nbytes() > limit) {
      buckets_.emplace_back();
      bytes = 0;
      type = part.parameter.scalar_type();
    }
    bytes += part.parameter.nbytes();
    part.bucket = buckets_.size() - 1;
    ++buckets_.back().parts;
  }
}

void GradientSum::make_buffers() {
  std::vector<std::int64_t> lengths(buckets_.size(), 0);
  for (const auto& part : parts_) lengths[part.bucket] += aligned(part.parameter.numel());
  auto part = parts_.begin();
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    const bool is_last = i + 1 == buckets_.size();
    auto& buffer = buckets_[i].buffer;
    buffer = at::zeros({lengths[i] + (is_last ? 1 : 0)}, part->parameter.options().requires_grad(false));
    for (std::int64_t first = 0; part != parts_.end() && part->bucket == i; ++part) {
      part->mean = part_like(buffer, first, part->parameter);
      first += aligned(part->parameter.numel());
    }
    if (is_last) wants_stop_ = buffer.narrow(0, lengths[i], 1);
  }
}

void GradientSum::expect() {
  is_expected_ = true;
  for (auto& part : parts_) part.is_there = part.bucket < next_;
  for (auto& bucket : buckets_ | std::views::drop(next_)) bucket.missing = bucket.parts;
}

/// In autograd's thread, or in that of the training for a CPU; never in both, for all parameters are on one device.
void GradientSum::arrive(std::size_t part) {
  if (!is_expected_ || parts_[part].is_there) return;
  put(parts_[part]);
  send_whole_buckets();
}

void GradientSum::put(Part& part) {
  const at::NoGradGuard without_gradients;
  auto& gradient = part.parameter.mutable_grad();
  if (!gradient.defined())
    part.mean.zero_();
  else if (gradient.data_ptr() != part.mean.data_ptr())
    part.mean.copy_(gradient);
  gradient = part.mean;  // what autograd made is free again
  part.is_there = true;
  --buckets_[part.bucket].missing;
}

/// In their order, whichever is whole first: it must be the same in every process.
void GradientSum::send_whole_buckets() {
  for (; !error_ && next_ < buckets_.size() && buckets_[next_].missing == 0; ++next_) {
    auto work = group_.begin_sum(buckets_[next_].buffer);
    if (work)
      buckets_[next_].work = *std::move(work);
    else
      error_ = work.error();
  }
}

base::Result<void> GradientSum::wait() {
  is_expected_ = false;
  for (auto& part : parts_) {
    if (!part.is_there) put(part);
    part.parameter.mutable_grad() = part.mean;
  }
  send_whole_buckets();
  if (error_) return std::unexpected(*error_);
  for (auto& bucket : buckets_) {
    if (const auto done = group_.end(bucket.work); !done) return done;
    bucket.buffer.div_(group_.size());
  }
  next_ = 0;
  return {};
}

void GradientSum::want_stop(bool wants) {
  wants_stop_.fill_(wants ? 1 : 0);
}

base::Result<bool> GradientSum::is_stop_wanted() {
  take_vote();
  if (steps_ < votes_.size()) return false;
  const auto& before = votes_[steps_ % votes_.size()];
  if (before.is_here) before.is_here->synchronize();
  if (const auto done = group_.check(); !done) return std::unexpected(done.error());
  return before.count.item<float>() > 0;
}

void GradientSum::take_vote() {
  auto& vote = votes_[steps_++ % votes_.size()];
  const auto device = wants_stop_.device();
  if (!vote.count.defined())
    vote.count = at::zeros({1}, at::TensorOptions(wants_stop_.scalar_type()).pinned_memory(device.is_cuda()));
  vote.count.copy_(wants_stop_, true);
  if (!device.is_cuda()) return;
  if (!vote.is_here) vote.is_here.emplace(device.type());
  vote.is_here->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

}  // namespace fullwatt::engine
