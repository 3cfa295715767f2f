#include "fullwatt/engine/recomputed.hpp"

#include <optional>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include "fullwatt/engine/step_graph.hpp"

namespace fullwatt::engine {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Where the random numbers of the CPU and of a device have got to.
class RandomState {
 public:
  explicit RandomState(at::Device device) {
    generators_.push_back(at::detail::getDefaultCPUGenerator());
    if (!device.is_cpu()) generators_.push_back(at::globalContext().defaultGenerator(device));
    for (const auto& generator : generators_) states_.push_back(generator.get_state());
  }
  void restore() {
    for (std::size_t i = 0; i < generators_.size(); ++i) generators_[i].set_state(states_[i]);
  }

 private:
  std::vector<at::Generator> generators_;
  std::vector<at::Tensor> states_;
};

/// A graph counts its random numbers by itself: set back, it would draw others, and nobody would be told.
RandomState random_state(at::Device device) {
  TORCH_CHECK(!StepGraph::is_recording(),
              "dropout that is computed again (train.activation_checkpointing) cannot be in a graph");
  return RandomState(device);
}

/// Draws from an earlier state while it lives.
class DrawnAgain {
 public:
  DrawnAgain(RandomState& earlier, at::Device device) : now_(device) { earlier.restore(); }
  DrawnAgain(const DrawnAgain&) = delete;
  DrawnAgain& operator=(const DrawnAgain&) = delete;
  ~DrawnAgain() { now_.restore(); }

 private:
  RandomState now_;
};

/// Which products this thread shortens on a device.
struct Autocast {
  explicit Autocast(at::DeviceType type)
      : device(type), is_on(at::autocast::is_autocast_enabled(type)), dtype(at::autocast::get_autocast_dtype(type)) {}
  void set() const {
    at::autocast::set_autocast_enabled(device, is_on);
    at::autocast::set_autocast_dtype(device, dtype);
  }

  at::DeviceType device;
  bool is_on;
  at::ScalarType dtype;
};

/// Puts it in force while it lives. Casts of weights that others keep belong to graphs of their own.
class ShortenedAgain {
 public:
  explicit ShortenedAgain(const Autocast& earlier) : now_(earlier.device) {
    at::autocast::clear_cache();
    earlier.set();
  }
  ShortenedAgain(const ShortenedAgain&) = delete;
  ShortenedAgain& operator=(const ShortenedAgain&) = delete;
  ~ShortenedAgain() {
    now_.set();
    at::autocast::clear_cache();
  }

 private:
  Autocast now_;
};

/// Keeps no casts of weights while it lives: those of a computation without gradients would be of no use to others.
class WithoutCastCache {
 public:
  WithoutCastCache() { at::autocast::set_autocast_cache_enabled(false); }
  WithoutCastCache(const WithoutCastCache&) = delete;
  WithoutCastCache& operator=(const WithoutCastCache&) = delete;
  ~WithoutCastCache() { at::autocast::set_autocast_cache_enabled(was_on_); }

 private:
  bool was_on_ = at::autocast::is_autocast_cache_enabled();
};

/// Has copies of buffers changed in their place while it lives.
class SparedBuffers {
 public:
  explicit SparedBuffers(std::vector<at::Tensor> buffers) : buffers_(std::move(buffers)) {
    for (auto& buffer : buffers_) {
      kept_.push_back(buffer.detach());
      buffer.set_data(buffer.clone());
    }
  }
  SparedBuffers(const SparedBuffers&) = delete;
  SparedBuffers& operator=(const SparedBuffers&) = delete;
  ~SparedBuffers() {
    for (std::size_t i = 0; i < kept_.size(); ++i) buffers_[i].set_data(kept_[i]);
  }

 private:
  std::vector<at::Tensor> buffers_;
  std::vector<at::Tensor> kept_;
};

/// A part, and what its second computation needs to be like the first.
class Part : public torch::CustomClassHolder {
 public:
  Part(const torch::nn::Module& module, Forward forward, at::Device device, bool draws)
      : forward_(std::move(forward)), buffers_(module.buffers()), device_(device), autocast_(device.type()) {
    if (draws) random_ = random_state(device);
    for (const auto& parameter : module.parameters()) {
      if (parameter.requires_grad()) parameters_.push_back(parameter);
    }
  }

  const std::vector<at::Tensor>& parameters() const { return parameters_; }

  at::Tensor first(const at::Tensor& input) const {
    const WithoutCastCache without_cache;
    return forward_(input);
  }

  /// Of the input and the parameters.
  variable_list gradients(const at::Tensor& kept, const at::Tensor& of_output) {
    const at::AutoGradMode with_gradients(true);
    const SparedBuffers spared(buffers_);  // until backward is done, which may look at them
    const auto input = kept.detach().requires_grad_(kept.requires_grad());
    const auto output = second(input);
    auto wanted = parameters_;
    if (input.requires_grad()) wanted.insert(wanted.begin(), input);
    auto found = torch::autograd::grad({output}, wanted, {of_output}, std::nullopt, false, /*allow_unused=*/true);
    if (!input.requires_grad()) found.insert(found.begin(), at::Tensor());
    return found;
  }

 private:
  at::Tensor second(const at::Tensor& input) {
    std::optional<DrawnAgain> drawn_again;
    if (random_) drawn_again.emplace(*random_, device_);
    const ShortenedAgain shortened_again(autocast_);
    return forward_(input);
  }

  Forward forward_;
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> buffers_;
  at::Device device_;
  Autocast autocast_;
  std::optional<RandomState> random_;
};

/// The parameters are inputs, so that autograd adds their gradients as it does all others, and a part whose input needs
/// none gets them as well.
struct Recomputed : torch::autograd::Function<Recomputed> {
  static at::Tensor forward(AutogradContext* context, const c10::intrusive_ptr<Part>& part, const at::Tensor& input,
                            at::TensorList /*parameters*/) {
    context->save_for_backward({input});
    context->saved_data["part"] = at::IValue::make_capsule(part);
    return part->first(input);
  }

  static variable_list backward(AutogradContext* context, const variable_list& of_output) {
    const auto part = c10::static_intrusive_pointer_cast<Part>(context->saved_data.at("part").toCapsule());
    auto found = part->gradients(context->get_saved_variables().front(), of_output.front());
    found.insert(found.begin(), at::Tensor());  // of the part itself
    return found;
  }
};

}  // namespace

at::Tensor recomputed(const torch::nn::Module& module, Forward forward, const at::Tensor& input, bool draws) {
  if (!at::GradMode::is_enabled()) return forward(input);
  const auto part = c10::make_intrusive<Part>(module, std::move(forward), input.device(), draws);
  return Recomputed::apply(part, input, at::TensorList(part->parameters()));
}

}  // namespace fullwatt::engine
