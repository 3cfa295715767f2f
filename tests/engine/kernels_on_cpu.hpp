#pragma once

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <tuple>
#include <vector>

#include <c10/util/Half.h>
#include <ucontext.h>

/// What a CUDA source needs to be compiled for the CPU, and blocks whose threads take turns: each runs to the next
/// __syncthreads.
namespace fullwatt::tests {

struct Index {
  unsigned x = 0;
  unsigned y = 0;
};

inline Index threadIdx;
inline Index blockIdx;
inline Index gridDim;

class Block {
 public:
  Block(unsigned threads, const std::function<void()>& kernel) : kernel_(kernel), places_(threads) {
    for (auto& place : places_) place.stack = std::make_unique<char[]>(kStackBytes);
  }

  void run() {
    running() = this;
    for (auto& place : places_) {
      ::getcontext(&place.context);
      place.context.uc_stack = {.ss_sp = place.stack.get(), .ss_flags = 0, .ss_size = kStackBytes};
      place.context.uc_link = nullptr;
      ::makecontext(&place.context, &Block::thread, 0);
      place.is_done = false;
    }
    for (bool is_going = true; is_going;) {
      is_going = false;
      for (now_ = 0; now_ < places_.size(); ++now_) {
        if (places_[now_].is_done) continue;
        threadIdx.x = static_cast<unsigned>(now_);
        ::swapcontext(&outside_, &places_[now_].context);
        is_going = true;
      }
    }
  }

  static void take_turns() {
    auto& block = *running();
    ::swapcontext(&block.places_[block.now_].context, &block.outside_);
  }

 private:
  static constexpr std::size_t kStackBytes = 32 * 1024;
  struct Place {
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    bool is_done = false;
  };

  static Block*& running() {
    static Block* block = nullptr;
    return block;
  }
  static void thread() {
    running()->kernel_();
    auto& block = *running();
    block.places_[block.now_].is_done = true;
    take_turns();
  }

  const std::function<void()>& kernel_;
  std::vector<Place> places_;
  std::size_t now_ = 0;
  ucontext_t outside_{};
};

using Launch = std::function<void(unsigned x, unsigned y, unsigned threads, void** arguments)>;

/// A kernel that takes its arguments as a launch gives them.
template <class... Arguments>
Launch launch_of(void (*kernel)(Arguments...)) {
  return [kernel](unsigned x, unsigned y, unsigned threads, void** arguments) {
    const std::function<void()> call = [&] {
      [&]<std::size_t... kPlace>(std::index_sequence<kPlace...>) {
        kernel(*static_cast<std::remove_cv_t<Arguments>*>(arguments[kPlace])...);
      }(std::index_sequence_for<Arguments...>());
    };
    Block block(threads, call);
    gridDim = {x, y};
    for (blockIdx.y = 0; blockIdx.y < y; ++blockIdx.y) {
      for (blockIdx.x = 0; blockIdx.x < x; ++blockIdx.x) block.run();
    }
  };
}

inline void __syncthreads() {
  Block::take_turns();
}
inline float __uint_as_float(unsigned bits) {
  return std::bit_cast<float>(bits);
}
inline unsigned __float_as_uint(float value) {
  return std::bit_cast<unsigned>(value);
}
inline float half_to_float(unsigned short bits) {
  return c10::detail::fp16_ieee_to_fp32_value(bits);
}
inline unsigned short float_to_half(float value) {
  return c10::detail::fp16_ieee_from_fp32_value(value);
}

}  // namespace fullwatt::tests

#define __shared__ static
#define __launch_bounds__(threads)
