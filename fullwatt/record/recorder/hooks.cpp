#include "fullwatt/record/recorder/hooks.hpp"

#include <algorithm>
#include <iterator>
#include <memory>

#include <pthread.h>

#include "fullwatt/record/spool_writer.hpp"

namespace fullwatt::record {
namespace {

using vendor::python::Arguments;
using vendor::python::Object;

class Hook : public vendor::python::Body {
 public:
  Hook(fullwatt_training* training, Object* original, Object* python_hook, Object* then)
      : training_(*training), original_(original), python_hook_(python_hook), then_(then) {}

 protected:
  Object* original(const Arguments& arguments) const { return vendor::python::call(original_.get(), arguments); }
  Object* not_steady(const Arguments& arguments) const { return vendor::python::call(python_hook_.get(), arguments); }
  Object* then() const { return then_.get(); }

  bool in_window() const { return training_.detail == FULLWATT_DETAIL_PHASES; }
  bool steady() const { return training_.detail == 0 || in_window(); }
  /// A phase that began at `start` is over. Until the step ends it is remembered, unless it is recorded one by one.
  void spent(Phase phase, std::uint64_t start, std::uint64_t& remembered) const {
    if (in_window()) {
      fullwatt_phase(static_cast<int>(phase), start, 0);
    } else {
      remembered += now_ns() - start;
    }
  }

  fullwatt_training& training_;

 private:
  vendor::python::Kept original_;
  vendor::python::Kept python_hook_;
  vendor::python::Kept then_;
};

/// `__next__(iterator)` of a loader's iterator.
class NextBatch : public Hook {
 public:
  using Hook::Hook;

  Object* call(const Arguments& arguments) override {
    if (!steady() || training_.thread != ::pthread_self()) return not_steady(arguments);
    const auto start = now_ns();
    Object* batch = original(arguments);
    spent(Phase::data, start, training_.data_ns);
    if (batch != nullptr) {
      training_.credits += 1;
    } else if (vendor::python::raises_stop_iteration()) {
      vendor::python::call_while_raising(then(), arguments);
    }
    return batch;
  }
};

/// `torch.autograd.backward(tensors, …)`.
class Backward : public Hook {
 public:
  using Hook::Hook;

  Object* call(const Arguments& arguments) override {
    if (!steady() || training_.in_backward != 0) return not_steady(arguments);
    training_.in_backward = 1;
    const auto start = now_ns();
    Object* result = original(arguments);
    training_.in_backward = 0;
    if (result == nullptr) return nullptr;
    spent(Phase::backward, start, training_.backward_ns);
    if (training_.credits > 0) {
      training_.credits -= 1;
      training_.taken += training_.batch;
    }
    return result;
  }
};

std::uint64_t id_of(Object* object) {
  return reinterpret_cast<std::uint64_t>(object);  // as Python's id()
}

constexpr std::ptrdiff_t kStepArguments = 3;  // (optimizer, args, kwargs) of torch's step hooks

/// Torch's hook before a step of an optimiser.
class BeforeStep : public Hook {
 public:
  using Hook::Hook;

  Object* call(const Arguments& arguments) override {
    if (training_.stepping != 0 || !is_plain(arguments)) return not_steady(arguments);
    training_.stepping = id_of(arguments.values[0]);
    training_.step_start = now_ns();
    return vendor::python::none();
  }

 private:
  /// A step without a closure.
  static bool is_plain(const Arguments& arguments) {
    return arguments.count == kStepArguments && arguments.names == nullptr &&
           vendor::python::is_tuple_of(arguments.values[1], 1) && vendor::python::is_dict_of(arguments.values[2], 0);
  }
};

/// Torch's hook after a step of an optimiser.
class AfterStep : public Hook {
 public:
  using Hook::Hook;

  Object* call(const Arguments& arguments) override {
    const auto* known = arguments.count == kStepArguments ? find(id_of(arguments.values[0])) : nullptr;
    const bool outermost = known != nullptr && training_.inner_steps == 0 && training_.stepping == *known;
    if (!outermost || !steady()) return not_steady(arguments);
    const auto number = static_cast<std::uint32_t>(known - std::begin(training_.optimizers));
    training_.stepping = 0;
    training_.steps += 1;
    const auto actions = finish(number);
    training_.data_ns = training_.backward_ns = training_.taken = 0;
    return actions == 0 ? vendor::python::none() : vendor::python::call(then(), actions);
  }

 private:
  std::uint32_t finish(std::uint32_t number) const {
    if (in_window()) {
      fullwatt_samples(training_.taken);
      return fullwatt_step(number, training_.step_start, 0);
    }
    const auto end = now_ns();
    return fullwatt_steady_step(training_.is_rehearsal != 0 ? FULLWATT_REHEARSAL : number, training_.step_start, end,
                                training_.taken, training_.data_ns, training_.backward_ns);
  }
  const std::uint64_t* find(std::uint64_t optimizer) const {
    const auto* found = std::ranges::find(training_.optimizers, optimizer);
    return found != std::end(training_.optimizers) ? found : nullptr;
  }
};

}  // namespace

Object* make_hook(HookKind kind, fullwatt_training* training, Object* original, Object* python_hook, Object* then) {
  using vendor::python::Binding;
  using vendor::python::function_of;
  if (!vendor::python::functions_known()) return nullptr;
  switch (kind) {
    case HookKind::next_batch:
      return function_of(std::make_unique<NextBatch>(training, original, python_hook, then), Binding::method);
    case HookKind::backward:
      return function_of(std::make_unique<Backward>(training, original, python_hook, then), Binding::none);
    case HookKind::before_step:
      return function_of(std::make_unique<BeforeStep>(training, original, python_hook, then), Binding::none);
    case HookKind::after_step:
      return function_of(std::make_unique<AfterStep>(training, original, python_hook, then), Binding::none);
  }
  return nullptr;
}

}  // namespace fullwatt::record
