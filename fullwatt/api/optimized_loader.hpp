#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

namespace fullwatt::api {

/// Tensors by the names of their fields; the first dimension counts samples.
using Fields = std::map<std::string, at::Tensor>;

/// Samples that a program makes itself. `sample` gives the fields of one, on the CPU and without a dimension that
/// counts samples, always of the same shapes and types; it is called by several threads at once.
struct SampleSource {
  std::int64_t samples = 0;
  std::function<Fields(std::int64_t index)> sample;
};

/// Batches on the device that trains, fetched by threads and copied ahead. Each loop over it is an epoch:
///   for (const auto& batch : loader) accelerator.step(batch);
/// A loop that was left goes on where it was. A batch is good until the next one. To be used by one thread.
class OptimizedLoader {
 public:
  class Iterator {
   public:
    using value_type = Fields;
    using difference_type = std::ptrdiff_t;

    const Fields& operator*() const;
    const Fields* operator->() const { return &**this; }
    Iterator& operator++();
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return is_over_; }

   private:
    friend class OptimizedLoader;
    explicit Iterator(OptimizedLoader& loader);
    void take();

    OptimizedLoader* loader_;
    std::uint64_t epoch_;
    bool is_over_ = false;
  };

  OptimizedLoader(OptimizedLoader&&) noexcept;
  OptimizedLoader& operator=(OptimizedLoader&&) noexcept;
  ~OptimizedLoader();

  /// Throws std::runtime_error where samples cannot be read, as does going on.
  Iterator begin();
  std::default_sentinel_t end() const { return {}; }

  std::int64_t samples() const;
  /// An epoch's end that makes no whole batch is left out.
  std::uint64_t batches_per_epoch() const;
  /// Of the next batch, counted from 0.
  std::uint64_t epoch() const;
  std::uint64_t batch() const;
  /// The order of an epoch is decided by the seed and its number alone.
  void seek(std::uint64_t epoch, std::uint64_t batch = 0);

  struct State;
  explicit OptimizedLoader(std::unique_ptr<State> state);
  State& state() { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

}  // namespace fullwatt::api
