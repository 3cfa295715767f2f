#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAStream.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/engine/step_graph.hpp"

namespace fullwatt::engine {
namespace {

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
  }

 private:
  Named tensors_;
  std::vector<at::Tensor> copies_;
  at::Generator generator_;
  at::Tensor random_;
};

class CudaStepGraph final : public StepGraph {
 public:
  CudaStepGraph(Step& step, const Fields& example) : step_(step) {
    for (const auto& [name, tensor] : example) inputs_.emplace(name, tensor.clone());
  }

  void record() {
    Snapshot before(step_);
    for (int i = 0; i < kRehearsals; ++i) whole_step();
    before.restore();
    step_.forget_losses();
    c10::cuda::getCurrentCUDAStream().synchronize();
    graph_.capture_begin();
    try {
      whole_step();
    } catch (...) {
      end_capture_quietly();
      before.restore();
      step_.forget();
      step_.forget_losses();
      throw;
    }
    graph_.capture_end();
    before.restore();
  }

  void run(const Fields& batch) override {
    const at::NoGradGuard without_gradients;
    for (auto& [name, tensor] : inputs_) tensor.copy_(batch.at(name), true);
    graph_.replay();
  }

 private:
  static constexpr int kRehearsals = 3;  // cuDNN chooses its kernels, libraries take their memory

  void whole_step() {
    step_.add(inputs_, 1);
    static_cast<void>(step_.apply());  // other processes there are none
  }
  void end_capture_quietly() {
    try {
      graph_.capture_end();
    } catch (const c10::Error&) {  // that it failed is known
    }
  }

  Step& step_;
  Fields inputs_;
  at::cuda::CUDAGraph graph_;
};

}  // namespace

base::Result<std::unique_ptr<StepGraph>> StepGraph::record(Step& step, const Fields& example) {
  if (!step.device().is_cuda()) return base::fail(base::Error::Kind::unavailable, "only a GPU has graphs");
  auto graph = std::make_unique<CudaStepGraph>(step, example);
  try {
    graph->record();
  } catch (const c10::OutOfMemoryError&) {
    throw;  // smaller pieces may help
  } catch (const c10::Error& error) {
    return base::fail(base::Error::Kind::unavailable, base::printable(error.what_without_backtrace(), 200));
  }
  return graph;
}

}  // namespace fullwatt::engine
