// The keypoint network for slider CAPTCHAs: heat maps and offsets of gap and slider on a grid of a quarter of the
// picture. Its parameters have the names of examples/keypoint/network.py.

#include <torch/nn/init.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>

#include "fullwatt/engine/fused_norm.hpp"
#include "fullwatt/engine/recomputed.hpp"
#include "fullwatt/engine/task.hpp"

namespace fullwatt::engine {
namespace {

namespace nn = torch::nn;

/// A Sequential that can stand in another one.
struct ChainImpl : nn::SequentialImpl {
  using SequentialImpl::SequentialImpl;
  at::Tensor forward(const at::Tensor& x) { return SequentialImpl::forward(x); }
};
TORCH_MODULE(Chain);

/// A convolution of 3×3 points with its batch norm and ReLU, under the names of a Sequential; where a residual is
/// added, the ReLU comes after.
struct ConvolutionImpl : nn::Module {
  ConvolutionImpl(std::int64_t inputs, std::int64_t outputs, std::int64_t stride = 1)
      : convolution(register_module("0", nn::Conv2d(nn::Conv2dOptions(inputs, outputs, 3).stride(stride).padding(1)))),
        norm(register_module("1", nn::BatchNorm2d(outputs))) {}

  at::Tensor forward(const at::Tensor& x) { return convolved_and_normed(kernels, *convolution, *norm, x); }
  at::Tensor added_to(const at::Tensor& residual, const at::Tensor& x) {
    return convolved_and_normed(kernels, *convolution, *norm, x, {.residual = residual});
  }

  nn::Conv2d convolution;
  nn::BatchNorm2d norm;
  c10::intrusive_ptr<KernelSet> kernels;  ///< null: torch's own
};
TORCH_MODULE(Convolution);

struct ResidualImpl : nn::Module {
  explicit ResidualImpl(std::int64_t channels)
      : first(register_module("first", Convolution(channels, channels))),
        second(register_module("second", Convolution(channels, channels))) {}

  at::Tensor forward(const at::Tensor& x) { return second->added_to(x, first->forward(x)); }

  Convolution first;
  Convolution second;
};
TORCH_MODULE(Residual);

struct KeypointNetwork : nn::Module {
  explicit KeypointNetwork(std::int64_t channels)
      : stem(register_module(
            "stem", Chain(Convolution(3, channels, 2), Convolution(channels, channels, 2), Residual(channels)))),
        down(register_module("down", nn::ModuleList())),
        up(register_module("up", nn::ModuleList())),
        merge(register_module("merge", Residual(channels))),
        heatmaps(register_module(
            "heatmaps", Chain(Convolution(channels, channels), nn::Conv2d(nn::Conv2dOptions(channels, 2, 1))))),
        offsets(register_module(
            "offsets", Chain(Convolution(channels, channels), nn::Conv2d(nn::Conv2dOptions(channels, 4, 1))))) {
    constexpr int kBlocks[] = {2, 2, 4};
    constexpr double kRare = -2.2;  // few cells of the grid hold a point
    auto width = channels;
    for (const int blocks : kBlocks) {
      Chain level;
      level->push_back(Convolution(width, 2 * width, 2));
      for (int i = 0; i < blocks; ++i) level->push_back(Residual(2 * width));
      down->push_back(level);
      up->push_back(nn::ConvTranspose2d(nn::ConvTranspose2dOptions(2 * width, width, 2).stride(2)));
      width *= 2;
    }
    nn::init::constant_(heatmaps[1]->as<nn::Conv2d>()->bias, kRare);
  }

  std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& images) {
    std::vector<at::Tensor> levels{through(*stem, images)};
    for (const auto& module : *down) levels.push_back(through(*module->as<Chain>(), levels.back()));
    auto x = levels.back();
    for (auto level = down->size(); level-- > 0;) x = up[level]->as<nn::ConvTranspose2d>()->forward(x) + levels[level];
    const auto merged = through(*merge, x);
    return {at::sigmoid(through(*heatmaps, merged)), through(*offsets, merged)};
  }

  template <class Stage>
  at::Tensor through(Stage& stage, const at::Tensor& x) {
    return is_recomputed ? recomputed(stage, x) : stage.forward(x);
  }

  Chain stem;
  nn::ModuleList down;
  nn::ModuleList up;
  Residual merge;
  Chain heatmaps;
  Chain offsets;
  bool is_recomputed = false;  ///< activations of stages in backward
};

/// Penalises few points on a large grid, as CenterNet does.
at::Tensor focal_loss(const at::Tensor& given, const at::Tensor& target) {
  constexpr double kLeast = 1e-4;
  const auto predicted = given.clamp(kLeast, 1 - kLeast);
  const auto hits = target.eq(1).to(predicted.scalar_type());
  const auto positive = predicted.log() * (1 - predicted).square() * hits;
  const auto negative = (1 - predicted).log() * predicted.square() * (1 - target).pow(4) * (1 - hits);
  return -(positive.sum() + negative.sum()) / hits.sum().clamp_min(1);
}

/// L1 at the points only.
at::Tensor offset_loss(const at::Tensor& predicted, const at::Tensor& target, const at::Tensor& heatmaps) {
  const auto mask = heatmaps.eq(1).to(predicted.scalar_type()).repeat_interleave(2, 1);
  return ((predicted - target).abs() * mask).sum() / mask.sum().clamp_min(1);
}

class KeypointTask final : public Task {
 public:
  explicit KeypointTask(const ModelConfig& config) : network_(config.channels) {}

  nn::Module& network() override { return network_; }
  std::vector<std::string> fields() const override { return {"images", "heatmaps", "offsets"}; }
  bool has_places() const override { return true; }
  bool recompute() override { return network_.is_recomputed = true; }
  bool fuse_norms(const c10::intrusive_ptr<KernelSet>& kernels) override {
    for (const auto& module : network_.modules(/*include_self=*/false)) {
      if (auto* const found = module->as<Convolution>()) found->kernels = kernels;
    }
    return true;
  }
  at::Tensor loss(const Fields& batch) override {
    const auto [heatmaps, offsets] = network_.forward(batch.at("images"));
    const auto& target = batch.at("heatmaps");
    return focal_loss(heatmaps.to(at::kFloat), target) +
           offset_loss(offsets.to(at::kFloat), batch.at("offsets"), target);
  }

 private:
  KeypointNetwork network_;
};

}  // namespace

std::unique_ptr<Task> make_keypoint(const ModelConfig& config) {
  return std::make_unique<KeypointTask>(config);
}

}  // namespace fullwatt::engine
