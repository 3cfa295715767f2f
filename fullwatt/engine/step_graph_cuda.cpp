#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/engine/quietly.hpp"
#include "fullwatt/engine/step_graph.hpp"

namespace fullwatt::engine {
namespace {

thread_local bool recording = false;

/// What a rehearsal must leave as it was.
class Snapshot {
 public:
  explicit Snapshot(const Step& step)
      : tensors_(step.state()),
        generator_(at::globalContext().defaultGenerator(step.device())),
        random_(generator_.get_state()) {
    for (const auto& [name, tensor] : tensors_) copies_.push_back(tensor.detach().clone());
  }
  void restore() {
    const at::NoGradGuard without_gradients;
    for (std::size_t i = 0; i < copies_.size(); ++i) tensors_[i].second.copy_(copies_[i]);
    generator_.set_state(random_);
    // cuDNN would begin its dropout anew from it, which cannot be recorded.
    generator_.get<at::CUDAGeneratorImpl>()->reset_rnn_state();
  }
  /// After a recording that failed, torch believes that one goes on.
  void free_generator() {
    generator_.graphsafe_set_state(at::cuda::detail::createCUDAGenerator(generator_.device().index()));
  }

 private:
  Named tensors_;
  std::vector<at::Tensor> copies_;
  at::Generator generator_;
  at::Tensor random_;
};

class CudaStepGraph final : public StepGraph {
 public:
  CudaStepGraph(Step& step, const Fields& example, std::uint64_t parts) : step_(step), inputs_(parts) {
    for (auto& input : inputs_) {
      for (const auto& [name, tensor] : example) input.emplace(name, tensor.clone());
    }
  }

  void record() {
    Snapshot before(step_);
    for (int i = 0; i < kRehearsals; ++i) whole_step();
    before.restore();
    step_.forget_losses();
    c10::cuda::getCurrentCUDAStream().synchronize();
    graph_.capture_begin();
    recording = true;
    try {
      whole_step();
      recording = false;
      graph_.capture_end();
    } catch (...) {
      recording = false;
      end_capture();
      before.free_generator();
      before.restore();
      step_.forget();
      step_.forget_losses();
      throw;
    }
    before.restore();
  }

  void put(std::uint64_t part, const Fields& batch) override {
    const at::NoGradGuard without_gradients;
    for (auto& [name, tensor] : inputs_.at(part)) tensor.copy_(batch.at(name), true);
  }
  void run() override { graph_.replay(); }

 private:
  static constexpr int kRehearsals = 3;  // cuDNN chooses its kernels, libraries take their memory

  void whole_step() {
    for (const auto& input : inputs_) step_.add(input, 1.0 / static_cast<double>(inputs_.size()));
    static_cast<void>(step_.apply());  // other processes there are none
  }
  /// Of one that failed: what is left to be ended depends on where.
  void end_capture() {
    quietly([&] { graph_.capture_end(); });
    quietly([&] { c10::cuda::CUDACachingAllocator::endAllocateToPool(step_.device().index(), graph_.pool()); });
  }

  Step& step_;
  std::vector<Fields> inputs_;  ///< of each batch of the step
  at::cuda::CUDAGraph graph_;
};

}  // namespace

base::Result<std::unique_ptr<StepGraph>> StepGraph::record(Step& step, const Fields& example, std::uint64_t parts) {
  if (!step.device().is_cuda()) return base::fail(base::Error::Kind::unavailable, "only a GPU has graphs");
  auto graph = std::make_unique<CudaStepGraph>(step, example, parts);
  try {
    graph->record();
  } catch (const c10::OutOfMemoryError&) {
    throw;  // smaller pieces may help
  } catch (const c10::Error& error) {
    return base::fail(base::Error::Kind::unavailable, base::printable(error.what_without_backtrace(), 200));
  }
  return graph;
}

bool StepGraph::is_recording() {
  return recording;
}

}  // namespace fullwatt::engine
