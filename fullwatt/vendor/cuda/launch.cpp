#include "fullwatt/vendor/cuda/launch.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <utility>

#include "fullwatt/vendor/cuda/kernel.hpp"

namespace fullwatt::vendor::cuda {
namespace {

using base::Reading;
using Data = std::array<std::uint32_t, kernel::kElements>;

/// Gives a driver resource back when the scope ends, whichever way it does.
template <class Action>
class [[nodiscard]] AtExit {
 public:
  explicit AtExit(Action action) : action_(std::move(action)) {}
  AtExit(const AtExit&) = delete;
  AtExit& operator=(const AtExit&) = delete;
  ~AtExit() { action_(); }

 private:
  Action action_;
};

/// Other numbers at every call, so that memory left over from an earlier launch cannot pass as a result.
Data fresh_input() {
  constexpr std::uint32_t kStride = 2654435761U;  // 2^32 divided by the golden ratio: neighbours differ in many bits
  auto value = static_cast<std::uint32_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  Data data;
  for (auto& element : data) element = value += kStride;
  return data;
}

Data inverted(Data data) {
  for (auto& element : data) element = ~element;
  return data;
}

Data expected_output(const Data& input) {
  Data output;
  for (std::uint32_t i = 0; i < output.size(); ++i) output[i] = kernel::expected(input[i], i);
  return output;
}

Reading<int> compute(const Calls& calls, abi::Function function, abi::Address from, abi::Address to) {
  void* parameters[] = {&from, &to};
  const auto started =
      calls.launch_kernel(function, kernel::kBlocks, 1, 1, kernel::kThreads, 1, 1, 0, nullptr, parameters, nullptr);
  return started.is(0) ? calls.synchronize() : started;
}

/// Copies in, computes, copies back, compares.
Reading<int> run_on_memory(const Calls& calls, abi::Function function, abi::Address memory) {
  const auto from = memory;
  const auto to = memory + sizeof(Data);
  const auto input = fresh_input();
  const auto right = expected_output(input);
  auto output = inverted(right);
  if (auto code = calls.copy_to_device(from, input.data(), sizeof input); !code.is(0)) return code;
  if (auto code = calls.copy_to_device(to, output.data(), sizeof output); !code.is(0)) return code;
  if (auto code = compute(calls, function, from, to); !code.is(0)) return code;
  if (auto code = calls.copy_to_host(output.data(), to, sizeof output); !code.is(0)) return code;
  if (output != right) return base::absent(base::Absent::failed, "the kernel ran but its result is wrong");
  return 0;
}

Reading<int> run_function(const Calls& calls, abi::Function function) {
  abi::Address memory = 0;
  if (auto code = calls.memory_allocate(&memory, 2 * sizeof(Data)); !code.is(0)) return code;
  const AtExit free([&] { calls.memory_free(memory); });
  return run_on_memory(calls, function, memory);
}

Reading<int> run_kernel(const Calls& calls) {
  abi::Module module = nullptr;
  if (auto code = calls.module_load(&module, kernel::kPtx); !code.is(0)) return code;
  const AtExit unload([&] { calls.module_unload(module); });
  abi::Function function = nullptr;
  if (auto code = calls.module_function(&function, module, kernel::kName); !code.is(0)) return code;
  return run_function(calls, function);
}

Reading<int> run_in_context(const Calls& calls, abi::Context context) {
  if (auto code = calls.context_push(context); !code.is(0)) return code;
  const AtExit pop([&] {
    abi::Context popped = nullptr;
    calls.context_pop(&popped);
  });
  return run_kernel(calls);
}

}  // namespace

Launch launch(const Calls& calls, abi::Device device) {
  abi::Context context = nullptr;
  Launch done;
  done.context = calls.context_retain(&context, device);
  if (!done.context.is(0)) return done;
  const AtExit release([&] { calls.context_release(device); });
  done.kernel = run_in_context(calls, context);
  return done;
}

}  // namespace fullwatt::vendor::cuda
