#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "fullwatt/base/error.hpp"
#include "fullwatt/engine/place.hpp"

namespace fullwatt::engine {

/// The processes that train one model, each with its share of every batch. All of them call the same functions in the
/// same order; where one is lost, the calls of the others fail, at the latest when the time is up.
class Group {
 public:
  /// Waits for all of them, at the longest for `timeout`, which then holds for every exchange.
  static base::Result<std::unique_ptr<Group>> join(const Place& place, at::Device device, std::chrono::seconds timeout);
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group();

  int rank() const { return place_.rank; }
  int size() const { return place_.size; }
  at::Device device() const { return device_; }

  /// The tensors of rank 0 to all.
  base::Result<void> broadcast(const std::vector<at::Tensor>& tensors);
  /// Replaces a tensor by its mean over all processes.
  base::Result<void> all_reduce(const at::Tensor& tensor);
  /// Whether it is so for any of them. Waits for the device.
  base::Result<bool> any(bool here);
  /// Waits until all are here; every exchange before it has succeeded then, also on a device. So before a checkpoint
  /// is written, and at the end: rank 0, where all meet, must be the last to go.
  base::Result<void> barrier();

  /// Fails once a process is known to be lost. On a GPU an exchange that failed leaves nonsense behind, and is found
  /// out by a thread of torch's; the other functions ask it, too.
  base::Result<void> check();

  using Work = c10::intrusive_ptr<c10d::Work>;
  /// Begins to add up a tensor over all processes, which must not be touched until `end`.
  base::Result<Work> begin_sum(const at::Tensor& tensor);
  /// What the device is told after this finds the sum.
  base::Result<void> end(const Work& work);

 private:
  Group(const Place& place, at::Device device, c10::intrusive_ptr<c10d::Backend> backend);

  template <class Exchange>
  base::Result<void> attempt(Exchange exchange);
  base::Result<void> sum(const at::Tensor& tensor);

  Place place_;
  at::Device device_;
  c10::intrusive_ptr<c10d::Backend> backend_;
  bool is_lost_ = false;
};

}  // namespace fullwatt::engine
