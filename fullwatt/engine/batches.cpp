#include "fullwatt/engine/batches.hpp"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <thread>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/index_select.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "fullwatt/engine/quietly.hpp"
#include "fullwatt/engine/tensors.hpp"

namespace fullwatt::engine {
namespace {

std::vector<std::int64_t> batch_shape(const Field& field, std::int64_t samples) {
  auto shape = field.shape;
  shape.insert(shape.begin(), samples);
  return shape;
}

/// The batch's own memory, not a copy of it.
Fields views_of(const DataSet& data, const Loader::Batch& batch) {
  Fields fields;
  for (std::size_t i = 0; i < data.fields().size(); ++i) {
    const auto& field = data.fields()[i];
    fields.emplace(field.name,
                   at::from_blob(batch.field(i), batch_shape(field, batch.samples()), *scalar_type(field.dtype)));
  }
  return fields;
}

/// While they are in the memory of the host, where looking at them costs little.
base::Result<void> check(const Fields& fields, const Limits& limits, const DataSet& data, const Loader::Batch& batch) {
  return check_limits(fields, limits, [&](const std::string& name, std::int64_t place) {
    const auto field = std::ranges::find(data.fields(), name, &Field::name) - data.fields().begin();
    return data.origin(static_cast<std::size_t>(field), batch.sample(place));
  });
}

/// For a training on the CPU: what the loader fetched, where it lies.
class HostBatches final : public Batches {
 public:
  HostBatches(const DataSet& data, const LoaderOptions& options, Limits limits)
      : data_(data), limits_(std::move(limits)), loader_(data, options) {}

  base::Result<std::optional<Fields>> next() override {
    current_.reset();
    auto batch = loader_.next();
    if (!batch) return std::unexpected(batch.error());
    if (!*batch) return std::nullopt;
    current_.emplace(**std::move(batch));
    auto fields = views_of(data_, *current_);
    if (const auto checked = check(fields, limits_, data_, *current_); !checked)
      return std::unexpected(checked.error());
    return fields;
  }

 private:
  const DataSet& data_;
  Limits limits_;
  Loader loader_;
  std::optional<Loader::Batch> current_;
};

/// All samples on the device; a batch is gathered there.
class CachedBatches final : public Batches {
 public:
  CachedBatches(const DataSet& data, const LoaderOptions& options, at::Device device)
      : data_(data),
        options_(options),
        device_(device),
        order_(data.samples(), options.shuffled, options.seed),
        epoch_(options.first_epoch),
        batch_(static_cast<std::int64_t>(options.first_batch)) {}

  /// Fetches everything once, in pieces, by as many threads as the loader has.
  base::Result<void> fill(const Limits& limits) {
    constexpr std::int64_t kPiece = 4096;
    auto all = options_;
    all.batch = std::min(kPiece, data_.samples());
    all.shuffled = false;
    all.part = 0;
    all.parts = 1;
    all.drop_last = false;
    all.first_epoch = all.first_batch = 0;
    all.epochs = 1;
    for (const auto& field : data_.fields()) {
      kept_.emplace(field.name, at::empty(batch_shape(field, data_.samples()),
                                          at::TensorOptions().dtype(scalar_type(field.dtype)).device(device_)));
    }
    HostBatches pieces(data_, all, limits);
    for (std::int64_t first = 0; first < data_.samples();) {
      const auto piece = pieces.next();
      if (!piece) return std::unexpected(piece.error());
      const auto count = (*piece)->begin()->second.size(0);
      for (const auto& [name, tensor] : **piece) kept_.at(name).narrow(0, first, count).copy_(tensor);
      first += count;
    }
    return {};
  }

  base::Result<std::optional<Fields>> next() override {
    const auto per_epoch = data_.samples() / (options_.batch * options_.parts);
    if (batch_ >= per_epoch) {
      ++epoch_;
      batch_ = 0;
    }
    if (per_epoch == 0 || epoch_ >= options_.epochs) return std::nullopt;
    if (!sequence_.defined() || sequence_epoch_ != epoch_) {
      const auto order = order_.epoch(epoch_);
      auto samples = order.part(0, order.size());
      sequence_ =
          at::from_blob(samples.data(), {data_.samples()}, at::kLong).to(at::TensorOptions(device_), false, true);
      sequence_epoch_ = epoch_;
    }
    const auto first = (batch_++ * options_.parts + options_.part) * options_.batch;
    const auto places = sequence_.narrow(0, first, options_.batch);
    Fields fields;
    for (const auto& [name, tensor] : kept_) fields.emplace(name, tensor.index_select(0, places));
    return fields;
  }

 private:
  const DataSet& data_;
  LoaderOptions options_;
  at::Device device_;
  Order order_;
  Fields kept_;
  at::Tensor sequence_;  ///< of the epoch, on the device
  std::uint64_t sequence_epoch_ = 0;
  std::uint64_t epoch_;
  std::int64_t batch_;
};

HostMemory pinned_memory() {
  const auto tensors = std::make_shared<std::map<std::byte*, at::Tensor>>();
  return {[tensors](std::size_t bytes) {
            auto tensor = at::empty({static_cast<std::int64_t>(std::max<std::size_t>(1, bytes))},
                                    at::TensorOptions().dtype(at::kByte).pinned_memory(true));
            auto* const start = static_cast<std::byte*>(tensor.data_ptr());
            tensors->emplace(start, std::move(tensor));
            return start;
          },
          [tensors](std::byte* start) { tensors->erase(start); }};
}

/// For a training on a GPU: a thread copies batches ahead on a stream of its own, into memory of the device that is
/// used in turn.
class CopiedBatches final : public Batches {
 public:
  CopiedBatches(const DataSet& data, const LoaderOptions& options, const Delivery& delivery)
      : data_(data),
        device_(delivery.device),
        limits_(delivery.limits),
        guard_(delivery.device.type()),
        stream_(guard_.getStreamFromGlobalPool(delivery.device, false)),
        loader_(data, options, delivery.is_pinned ? pinned_memory() : HostMemory::ordinary()) {
    for (auto& slot : slots_) {
      for (const auto& field : data.fields()) {
        slot.fields.emplace(field.name, at::empty(batch_shape(field, options.batch),
                                                  at::TensorOptions().dtype(scalar_type(field.dtype)).device(device_)));
      }
      // Work that this stream still has may be about this memory: what was there before, or torch's filling of it.
      slot.used.record(guard_.getStream(device_));
    }
    thread_ = std::thread([this] { copy_all(); });
  }
  ~CopiedBatches() override {
    {
      const std::scoped_lock lock(mutex_);
      is_over_ = true;
    }
    changed_.notify_all();
    thread_.join();
    quietly([&] { guard_.synchronizeStream(stream_); });
  }

  base::Result<std::optional<Fields>> next() override {
    std::unique_lock lock(mutex_);
    const auto training = guard_.getStream(device_);
    if (lent_) {
      lent_->used.record(training);
      lent_->state = Slot::State::free;
      lent_ = nullptr;
      changed_.notify_all();
    }
    auto& slot = slots_[take_];
    changed_.wait(lock, [&] { return slot.state == Slot::State::copied || is_done_; });
    if (slot.state != Slot::State::copied)
      return error_ ? base::Result<std::optional<Fields>>(std::unexpected(*error_)) : std::nullopt;
    slot.copied.block(training);
    slot.state = Slot::State::lent;
    lent_ = &slot;
    take_ = (take_ + 1) % kSlots;
    return slot.samples;
  }

 private:
  struct Slot {
    Fields fields;
    Fields samples;  ///< of them, as many as the batch has
    c10::Event copied{c10::DeviceType::CUDA};
    c10::Event used{c10::DeviceType::CUDA};
    enum class State { free, copied, lent } state = State::free;
  };

  void copy_all() {
    try {
      for (std::size_t place = 0;; place = (place + 1) % kSlots) {
        if (!copy_into(slots_[place])) break;
      }
    } catch (const c10::Error& failure) {
      fail({base::Error::Kind::unavailable, std::string("copying a batch: ") + failure.what_without_backtrace(),
            "'fullwatt doctor' looks at the GPU; the same command goes on from the last checkpoint."});
    }
    const std::scoped_lock lock(mutex_);
    is_done_ = true;
    changed_.notify_all();
  }

  /// False when there is nothing more to copy.
  bool copy_into(Slot& slot) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return is_over_ || slot.state == Slot::State::free; });
      if (is_over_) return false;
    }
    auto batch = loader_.next();
    if (!batch) fail(batch.error());
    if (!batch || !*batch) return false;
    const auto fields = views_of(data_, **batch);
    if (const auto checked = check(fields, limits_, data_, **batch); !checked) {
      fail(checked.error());
      return false;
    }
    const c10::StreamGuard on_stream(stream_);
    slot.used.block(stream_);
    slot.samples.clear();
    for (const auto& [name, tensor] : fields) {
      auto part = slot.fields.at(name).narrow(0, 0, tensor.size(0));
      part.copy_(tensor, true);
      slot.samples.emplace(name, part);
    }
    slot.copied.record(stream_);
    slot.copied.synchronize();  // then the batch's memory may be filled again
    const std::scoped_lock lock(mutex_);
    slot.state = Slot::State::copied;
    changed_.notify_all();
    return true;
  }

  void fail(base::Error error) {
    const std::scoped_lock lock(mutex_);
    error_ = std::move(error);
  }

  static constexpr std::size_t kSlots = 3;
  const DataSet& data_;
  at::Device device_;
  Limits limits_;
  c10::impl::VirtualGuardImpl guard_;
  c10::Stream stream_;
  Loader loader_;
  std::array<Slot, kSlots> slots_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t take_ = 0;
  Slot* lent_ = nullptr;
  bool is_over_ = false;
  bool is_done_ = false;
  std::optional<base::Error> error_;
  std::thread thread_;
};

}  // namespace

bool is_cached(const DataSet& data, const Delivery& delivery) {
  std::size_t bytes = 0;
  for (const auto& field : data.fields()) bytes += field.sample_bytes() * static_cast<std::size_t>(data.samples());
  return bytes <= delivery.cache_bytes;
}

std::size_t cache_room(std::optional<double> wanted_gb, std::size_t free_bytes) {
  constexpr double kGigabyte = 1e9;
  return wanted_gb ? static_cast<std::size_t>(*wanted_gb * kGigabyte) : free_bytes / 2;
}

base::Result<std::unique_ptr<Batches>> make_batches(const DataSet& data, const LoaderOptions& options,
                                                    const Delivery& delivery) {
  if (is_cached(data, delivery)) {
    auto cached = std::make_unique<CachedBatches>(data, options, delivery.device);
    if (const auto filled = cached->fill(delivery.limits); !filled) return std::unexpected(filled.error());
    return cached;
  }
  if (delivery.device.is_cpu()) return std::make_unique<HostBatches>(data, options, delivery.limits);
  return std::make_unique<CopiedBatches>(data, options, delivery);
}

}  // namespace fullwatt::engine
