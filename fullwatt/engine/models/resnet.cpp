// ResNet-50 for pictures with one label each, the stride in the 3×3 convolutions (v1.5). Parameters and buffers have
// the names and first values of torchvision.models.resnet50.

#include <torch/nn/init.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "fullwatt/engine/cross_entropy.hpp"
#include "fullwatt/engine/fused_norm.hpp"
#include "fullwatt/engine/recomputed.hpp"
#include "fullwatt/engine/task.hpp"

namespace fullwatt::engine {
namespace {

namespace nn = torch::nn;

constexpr std::int64_t kExpansion = 4;  ///< of a block's width in what it hands on

/// Keeps the size of a picture but for the stride.
nn::Conv2d convolution(std::int64_t inputs, std::int64_t outputs, std::int64_t size, std::int64_t stride = 1) {
  return nn::Conv2d(nn::Conv2dOptions(inputs, outputs, size).stride(stride).padding(size / 2).bias(false));
}

struct BottleneckImpl : nn::Module {
  BottleneckImpl(std::int64_t inputs, std::int64_t width, std::int64_t stride)
      : conv1(register_module("conv1", convolution(inputs, width, 1))),
        bn1(register_module("bn1", nn::BatchNorm2d(width))),
        conv2(register_module("conv2", convolution(width, width, 3, stride))),
        bn2(register_module("bn2", nn::BatchNorm2d(width))),
        conv3(register_module("conv3", convolution(width, kExpansion * width, 1))),
        bn3(register_module("bn3", nn::BatchNorm2d(kExpansion * width))) {
    const auto outputs = kExpansion * width;
    if (stride == 1 && inputs == outputs) return;
    downsample = register_module("downsample",
                                 nn::Sequential(convolution(inputs, outputs, 1, stride), nn::BatchNorm2d(outputs)));
  }

  at::Tensor forward(const at::Tensor& x) {
    const auto reduced = convolved_and_normed(kernels, *conv1, *bn1, x);
    const auto filtered = convolved_and_normed(kernels, *conv2, *bn2, reduced);
    return convolved_and_normed(kernels, *conv3, *bn3, filtered, {.residual = shortcut(x)});
  }

  at::Tensor shortcut(const at::Tensor& x) {
    if (downsample.is_empty()) return x;
    return convolved_and_normed(kernels, *downsample[0]->as<nn::Conv2d>(), *downsample[1]->as<nn::BatchNorm2d>(), x,
                                {.has_relu = false});
  }

  nn::Conv2d conv1;
  nn::BatchNorm2d bn1;
  nn::Conv2d conv2;
  nn::BatchNorm2d bn2;
  nn::Conv2d conv3;
  nn::BatchNorm2d bn3;
  nn::Sequential downsample{nullptr};     ///< only where the shape changes
  c10::intrusive_ptr<KernelSet> kernels;  ///< null: torch's own
};
TORCH_MODULE(Bottleneck);

/// Blocks of one width; the first one takes the stride.
nn::Sequential stage(std::int64_t inputs, std::int64_t width, int blocks, std::int64_t stride) {
  nn::Sequential found(Bottleneck(inputs, width, stride));
  for (int i = 1; i < blocks; ++i) found->push_back(Bottleneck(kExpansion * width, width, 1));
  return found;
}

struct ResNet : nn::Module {
  ResNet(std::int64_t width, std::int64_t classes)
      : conv1(register_module("conv1", convolution(3, width, 7, 2))),
        bn1(register_module("bn1", nn::BatchNorm2d(width))),
        layer1(register_module("layer1", stage(width, width, 3, 1))),
        layer2(register_module("layer2", stage(kExpansion * width, 2 * width, 4, 2))),
        layer3(register_module("layer3", stage(kExpansion * 2 * width, 4 * width, 6, 2))),
        layer4(register_module("layer4", stage(kExpansion * 4 * width, 8 * width, 3, 2))),
        fc(register_module("fc", nn::Linear(kExpansion * 8 * width, classes))) {
    for (const auto& module : modules(/*include_self=*/false)) {
      if (auto* found = module->as<nn::Conv2d>())
        nn::init::kaiming_normal_(found->weight, 0, torch::kFanOut, torch::kReLU);
    }
  }

  at::Tensor forward(const at::Tensor& images) {
    auto x = convolved_and_normed(kernels, *conv1, *bn1, images);
    x = at::max_pool2d(x, 3, 2, 1);
    for (const auto& layer : {layer1, layer2, layer3, layer4}) x = through(*layer, x);
    return fc->forward(x.mean({2, 3}));
  }

  at::Tensor through(const nn::SequentialImpl& layer, at::Tensor x) {
    for (const auto& module : layer.children()) {
      auto& block = *module->as<Bottleneck>();
      x = is_recomputed ? recomputed(block, x) : block.forward(x);
    }
    return x;
  }

  nn::Conv2d conv1;
  nn::BatchNorm2d bn1;
  nn::Sequential layer1;
  nn::Sequential layer2;
  nn::Sequential layer3;
  nn::Sequential layer4;
  nn::Linear fc;
  c10::intrusive_ptr<KernelSet> kernels;  ///< null: torch's own
  bool is_recomputed = false;             ///< activations of blocks in backward
};

class ResNetTask final : public Task {
 public:
  explicit ResNetTask(const ModelConfig& config) : network_(config.width, config.classes), classes_(config.classes) {}

  nn::Module& network() override { return network_; }
  std::vector<std::string> fields() const override { return {"images", "labels"}; }
  std::map<std::string, std::int64_t> limits() const override { return {{"labels", classes_}}; }
  /// What pictures of ImageNet have on average in red, green and blue, as in torchvision.
  Normalisation normalisation() const override { return {{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}}; }
  bool recompute() override { return network_.is_recomputed = true; }
  bool fuse_norms(const c10::intrusive_ptr<KernelSet>& kernels) override {
    network_.kernels = kernels;
    for (const auto& module : network_.modules(/*include_self=*/false)) {
      if (auto* const block = module->as<Bottleneck>()) block->kernels = kernels;
    }
    return true;
  }
  at::Tensor loss(const Fields& batch) override {
    return cross_entropy({}, network_.forward(batch.at("images")), batch.at("labels"));
  }

 private:
  ResNet network_;
  std::int64_t classes_;
};

}  // namespace

std::unique_ptr<Task> make_resnet(const ModelConfig& config) {
  return std::make_unique<ResNetTask>(config);
}

}  // namespace fullwatt::engine
