#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "fullwatt/engine/data/data_set.hpp"
#include "fullwatt/engine/data/order.hpp"

namespace fullwatt::engine {

/// Where batches lie: pinned memory for a GPU, ordinary memory otherwise.
struct HostMemory {
  std::function<std::byte*(std::size_t bytes)> allocate;
  std::function<void(std::byte*)> release;

  static HostMemory ordinary();
};

struct LoaderOptions {
  std::int64_t batch = 1;
  int threads = 1;
  int ahead = 3;  ///< batches that are in memory at once
  bool shuffled = true;
  std::uint64_t seed = 0;
  int part = 0;  ///< of the processes that share the samples: each takes one batch of so many
  int parts = 1;
  bool drop_last = true;          ///< an epoch's end that makes no whole batch for every process
  std::uint64_t first_epoch = 0;  ///< where a training goes on that was interrupted
  std::uint64_t first_batch = 0;
  std::uint64_t epochs = 1;  ///< counted from 0, not from the first one
};

/// Batches in order, fetched by threads ahead of the training into a ring of buffers.
class Loader {
 public:
  /// A batch that is lent: its memory is filled again once it is gone.
  class Batch {
   public:
    Batch(Batch&& other) noexcept : loader_(std::exchange(other.loader_, nullptr)), slot_(other.slot_) {}
    Batch& operator=(Batch&&) = delete;
    ~Batch();

    std::uint64_t epoch() const;
    std::uint64_t number() const;  ///< in its epoch
    std::int64_t samples() const;
    std::int64_t sample(std::int64_t index) const;  ///< its number in the data set
    std::byte* field(std::size_t index) const;
    /// The field's memory becomes the caller's, and other memory of its size the loader's.
    std::byte* exchange(std::size_t index, std::byte* other);

   private:
    friend class Loader;
    Batch(Loader& loader, std::size_t slot) : loader_(&loader), slot_(slot) {}

    Loader* loader_;
    std::size_t slot_;
  };

  Loader(const DataSet& data, const LoaderOptions& options, HostMemory memory = HostMemory::ordinary());
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;
  ~Loader();

  std::uint64_t batches_per_epoch() const;
  /// Waits for the next one; nothing after the last epoch. Fails where all are lent, or where fetching did.
  base::Result<std::optional<Batch>> next();
  /// Whether next() would answer at once, now or before the limit.
  bool is_ready(std::chrono::milliseconds limit);

 private:
  struct Slot {
    std::vector<std::byte*> fields;
    Sequence sequence;      ///< of its epoch
    std::size_t begin = 0;  ///< of the batch in it
    std::size_t samples = 0;
    std::uint64_t epoch = 0;
    std::uint64_t number = 0;
    std::size_t missing = 0;  ///< pieces that are not fetched yet
    enum class State { free, fetching, lent } state = State::free;
    std::optional<base::Error> error;
  };
  /// Some samples of one field of a batch.
  struct Piece {
    std::size_t slot;
    std::size_t field;
    std::size_t first;
    std::size_t count;
  };

  void start_threads();
  void stop_threads();
  void fill_free_slots();
  bool issue(std::size_t slot);
  void work();
  void give_back(std::size_t slot);

  const DataSet& data_;
  LoaderOptions options_;
  HostMemory memory_;
  Order order_;
  std::size_t piece_bytes_ = 0;
  std::mutex mutex_;
  std::condition_variable has_work_;
  std::condition_variable is_ready_;
  std::vector<Slot> slots_;
  std::deque<Piece> pieces_;
  std::uint64_t issue_epoch_;
  std::uint64_t issue_batch_;
  std::size_t issue_slot_ = 0;  ///< slots are filled, and lent, in turn
  std::size_t next_slot_ = 0;
  bool is_over_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace fullwatt::engine
