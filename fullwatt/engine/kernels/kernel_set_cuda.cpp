#include <map>
#include <mutex>

#include <ATen/cuda/CUDAContextLight.h>
#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include "fullwatt/engine/kernels/kernel_set.hpp"
#include "fullwatt/vendor/cuda/module.hpp"
#include "fullwatt/vendor/nvrtc/compiler.hpp"

namespace fullwatt::engine {
namespace {

using Functions = std::vector<vendor::cuda::abi::Function>;
using Made = base::Result<c10::intrusive_ptr<KernelSet>>;

/// Makes the GPU the current one while it lives, and its context that of a thread that called nothing of CUDA yet.
class OnGpu {
 public:
  explicit OnGpu(at::Device device) : guard_(device) {
    C10_CUDA_CHECK(c10::cuda::SetDevice(device.index(), /*force=*/true));
  }

 private:
  c10::DeviceGuard guard_;
};

class CudaKernelSet final : public KernelSet {
 public:
  CudaKernelSet(at::Device device, at::ScalarType numbers, vendor::cuda::Module module, Functions functions)
      : KernelSet(device, numbers, at::cuda::getDeviceProperties(device.index())->multiProcessorCount),
        module_(std::move(module)),
        functions_(std::move(functions)) {}

 private:
  void run(std::size_t kernel, const Blocks& blocks, void** arguments) const override {
    const OnGpu on(device());
    auto* const stream = reinterpret_cast<vendor::cuda::abi::Stream>(c10::cuda::getCurrentCUDAStream().stream());
    const auto done = module_.launch(functions_.at(kernel),
                                     {.x = static_cast<unsigned>(blocks.x),
                                      .y = static_cast<unsigned>(blocks.y),
                                      .threads = static_cast<unsigned>(blocks.threads)},
                                     stream, arguments);
    TORCH_CHECK(done, "a kernel of fullwatt: ", done.error().message);
  }

  vendor::cuda::Module module_;
  Functions functions_;
};

const char* name_of(at::ScalarType numbers) {
  switch (numbers) {
    case at::kFloat:
      return "Float";
    case at::kBFloat16:
      return "Bfloat16";
    case at::kHalf:
      return "Half";
    default:
      return nullptr;
  }
}

Made compiled(const KernelSource& source, at::Device device, at::ScalarType numbers) {
  const auto* const name = name_of(numbers);
  if (name == nullptr) return base::fail(base::Error::Kind::unavailable, "there are none for these numbers");
  // PyTorch's own link to NVRTC, which finds the one that it came with. Never closed: it is needed for other types.
  static const auto& compiler = *new auto(vendor::nvrtc::Compiler::load("libcaffe2_nvrtc.so"));
  if (!compiler) return std::unexpected(compiler.error());
  const auto* const gpu = at::cuda::getDeviceProperties(device.index());
  const auto image =
      compiler->compile(source.text, {"--std=c++17", std::string("-DNUMBER=") + name}, 10 * gpu->major + gpu->minor);
  if (!image) return std::unexpected(image.error());
  const OnGpu on(device);
  auto module = vendor::cuda::Module::load(*image);
  if (!module) return std::unexpected(module.error());
  Functions functions;
  for (const auto* const kernel : source.names) {
    const auto function = module->function(kernel);
    if (!function) return std::unexpected(function.error());
    functions.push_back(*function);
  }
  return c10::make_intrusive<CudaKernelSet>(device, numbers, *std::move(module), std::move(functions));
}

}  // namespace

Made KernelSet::make(const KernelSource& source, at::Device device, at::ScalarType numbers) {
  using Key = std::tuple<const char*, at::DeviceIndex, at::ScalarType>;
  static std::mutex mutex;
  static auto& all = *new std::map<Key, Made>();  // graphs may outlive others
  const std::lock_guard lock(mutex);
  const Key key(source.text, device.index(), numbers);
  auto found = all.find(key);
  if (found == all.end()) found = all.emplace(key, compiled(source, device, numbers)).first;
  return found->second;
}

}  // namespace fullwatt::engine
