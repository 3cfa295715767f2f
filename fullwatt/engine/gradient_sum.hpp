#pragma once

#include <array>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include "fullwatt/engine/group.hpp"

namespace fullwatt::engine {

/// Averages gradients over the processes of a group while backward still computes others. They are gathered in buckets
/// from the last parameter to the first, about as backward reaches them; a bucket is sent once all of it is there.
class GradientSum {
 public:
  /// As large as those of PyTorch's DistributedDataParallel: long messages, and most of them before backward ends.
  static constexpr std::size_t kBucketBytes = std::size_t{25} << 20U;

  /// The parameters are on the group's device, and the same for all.
  GradientSum(Group& group, const std::vector<at::Tensor>& parameters, std::size_t bucket_bytes = kBucketBytes);
  GradientSum(const GradientSum&) = delete;
  GradientSum& operator=(const GradientSum&) = delete;
  ~GradientSum();

  /// Before the last backward of a step: its gradients, and those that were there before, are averaged.
  void expect();
  /// The step failed here and is made again, with the same samples. What was sent of it stays sent: the others cannot
  /// be asked to forget it.
  void begin_again() { is_expected_ = false; }
  /// After it: every parameter has the mean as its gradient, zero where no process had one.
  base::Result<void> wait();

  /// Before the last backward of every step: whether this process wants to stop, which travels with the gradients.
  void want_stop(bool wants);
  /// Once after every step: whether any process wanted to stop in the step before. It is the same for all of them, and
  /// costs no waiting for the device, since that step is mostly done. Fails where a process was lost until then.
  base::Result<bool> is_stop_wanted();

 private:
  class Arrival;
  struct Part {
    at::Tensor parameter;
    at::Tensor mean;  ///< its part of the bucket
    std::size_t bucket = 0;
    bool is_there = false;
  };
  struct Bucket {
    at::Tensor buffer;
    std::size_t parts = 0;
    std::size_t missing = 0;
    Group::Work work;
  };
  /// Who wants to stop, on its way from the device.
  struct Vote {
    at::Tensor count;
    std::optional<c10::Event> is_here;
  };

  void fill_buckets(std::size_t bucket_bytes);
  void make_buffers();
  void arrive(std::size_t part);
  void put(Part& part);
  void send_whole_buckets();
  void take_vote();

  Group& group_;
  std::vector<Part> parts_;
  std::vector<Bucket> buckets_;  ///< in the order in which they are sent
  std::size_t next_ = 0;         ///< of the step's buckets
  bool is_expected_ = false;
  std::optional<base::Error> error_;
  at::Tensor wants_stop_;  ///< the end of the last bucket
  std::array<Vote, 2> votes_;
  std::size_t steps_ = 0;
};

}  // namespace fullwatt::engine
