#include "fullwatt/engine/data/loader.hpp"

#include <algorithm>
#include <new>

namespace fullwatt::engine {
namespace {

constexpr std::align_val_t kAlignment{4096};

/// Large enough that handing a piece out costs little, and so small that all batches that are in memory at once have
/// some for every thread.
std::size_t bytes_of_piece(const DataSet& data, const LoaderOptions& options) {
  constexpr std::size_t kForEach = 4;
  constexpr std::size_t kLeast = 64U << 10U;
  constexpr std::size_t kMost = 2U << 20U;
  std::size_t sample = 0;
  for (const auto& field : data.fields()) sample += field.sample_bytes();
  const auto ring =
      sample * static_cast<std::size_t>(options.batch) * static_cast<std::size_t>(std::max(1, options.ahead));
  return std::clamp(ring / (kForEach * static_cast<std::size_t>(std::max(1, options.threads))), kLeast, kMost);
}

}  // namespace

HostMemory HostMemory::ordinary() {
  return {[](std::size_t bytes) { return static_cast<std::byte*>(::operator new(bytes, kAlignment)); },
          [](std::byte* start) { ::operator delete(start, kAlignment); }};
}

Loader::Batch::~Batch() {
  if (loader_ != nullptr) loader_->give_back(slot_);
}

std::uint64_t Loader::Batch::epoch() const {
  return loader_->slots_[slot_].epoch;
}

std::uint64_t Loader::Batch::number() const {
  return loader_->slots_[slot_].number;
}

std::int64_t Loader::Batch::samples() const {
  return static_cast<std::int64_t>(loader_->slots_[slot_].samples);
}

std::int64_t Loader::Batch::sample(std::int64_t index) const {
  const auto& slot = loader_->slots_[slot_];
  return slot.sequence[slot.begin + static_cast<std::size_t>(index)];
}

std::byte* Loader::Batch::field(std::size_t index) const {
  return loader_->slots_[slot_].fields[index];
}

std::byte* Loader::Batch::exchange(std::size_t index, std::byte* other) {
  return std::exchange(loader_->slots_[slot_].fields[index], other);
}

Loader::Loader(const DataSet& data, const LoaderOptions& options, HostMemory memory)
    : data_(data),
      options_(options),
      memory_(std::move(memory)),
      order_(data.samples(), options.shuffled, options.seed),
      slots_(static_cast<std::size_t>(std::max(1, options.ahead))),
      issue_epoch_(options.first_epoch),
      issue_batch_(options.first_batch) {
  options_.batch = std::max<std::int64_t>(1, options_.batch);
  options_.parts = std::max(1, options_.parts);
  piece_bytes_ = bytes_of_piece(data_, options_);
  for (auto& slot : slots_) {
    for (const auto& field : data_.fields())
      slot.fields.push_back(memory_.allocate(field.sample_bytes() * static_cast<std::size_t>(options_.batch)));
  }
  fill_free_slots();
  start_threads();
}

Loader::~Loader() {
  stop_threads();
  for (const auto& slot : slots_) {
    for (auto* const start : slot.fields) memory_.release(start);
  }
}

/// All of them, or none and an exception: a thread that is not joined would end the process.
void Loader::start_threads() try {
  for (int i = 0; i < std::max(1, options_.threads); ++i) threads_.emplace_back([this] { work(); });
} catch (...) {
  stop_threads();
  throw;
}

void Loader::stop_threads() {
  {
    const std::scoped_lock lock(mutex_);
    is_over_ = true;
  }
  has_work_.notify_all();
  for (auto& thread : threads_) thread.join();
}

std::uint64_t Loader::batches_per_epoch() const {
  const auto samples = static_cast<std::uint64_t>(data_.samples());
  const auto of_all = static_cast<std::uint64_t>(options_.batch) * static_cast<std::uint64_t>(options_.parts);
  return options_.drop_last ? samples / of_all : (samples + of_all - 1) / of_all;
}

base::Result<std::optional<Loader::Batch>> Loader::next() {
  std::unique_lock lock(mutex_);
  auto& slot = slots_[next_slot_];
  if (slot.state == Slot::State::free) return std::nullopt;
  if (slot.state == Slot::State::lent)
    return base::fail(base::Error::Kind::bad_input, "all batches of the loader are lent",
                      "Let one go before the next.");
  is_ready_.wait(lock, [&] { return slot.missing == 0; });
  if (slot.error) return std::unexpected(*slot.error);
  slot.state = Slot::State::lent;
  Batch batch(*this, next_slot_);
  next_slot_ = (next_slot_ + 1) % slots_.size();
  return batch;
}

bool Loader::is_ready(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  const auto& slot = slots_[next_slot_];
  return is_ready_.wait_for(lock, limit, [&] { return slot.state != Slot::State::fetching || slot.missing == 0; });
}

/// The caller holds the lock, or no thread runs yet.
void Loader::fill_free_slots() {
  while (slots_[issue_slot_].state == Slot::State::free && issue(issue_slot_))
    issue_slot_ = (issue_slot_ + 1) % slots_.size();
}

/// Has the next batch fetched into a slot; false when there is none.
bool Loader::issue(std::size_t index) {
  auto& slot = slots_[index];
  const auto per_epoch = batches_per_epoch();
  if (per_epoch == 0) return false;
  if (issue_batch_ >= per_epoch) {
    issue_epoch_ += issue_batch_ / per_epoch;
    issue_batch_ %= per_epoch;
  }
  if (issue_epoch_ >= options_.epochs) return false;
  const auto batch = static_cast<std::size_t>(options_.batch);
  slot.sequence = order_.epoch(issue_epoch_);
  slot.begin = std::min(slot.sequence.size(),
                        (static_cast<std::size_t>(issue_batch_) * static_cast<std::size_t>(options_.parts) +
                         static_cast<std::size_t>(options_.part)) *
                            batch);
  slot.samples = std::min(batch, slot.sequence.size() - slot.begin);
  slot.epoch = issue_epoch_;
  slot.number = issue_batch_++;
  slot.error.reset();
  slot.state = Slot::State::fetching;
  for (std::size_t field = 0; field < data_.fields().size(); ++field) {
    const auto bytes = std::max<std::size_t>(1, data_.fields()[field].sample_bytes());
    const auto count = std::max<std::size_t>(1, piece_bytes_ / bytes);
    for (std::size_t first = 0; first < slot.samples; first += count, ++slot.missing)
      pieces_.push_back({index, field, first, std::min(count, slot.samples - first)});
  }
  return true;
}

void Loader::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    has_work_.wait(lock, [&] { return is_over_ || !pieces_.empty(); });
    if (is_over_) return;
    const auto piece = pieces_.front();
    pieces_.pop_front();
    auto& slot = slots_[piece.slot];
    lock.unlock();
    const auto begin = slot.begin + piece.first;
    const auto fetched =
        data_.fetch(piece.field, slot.sequence.part(begin, begin + piece.count),
                    slot.fields[piece.field] + piece.first * data_.fields()[piece.field].sample_bytes());
    lock.lock();
    if (!fetched && !slot.error) slot.error = fetched.error();
    if (--slot.missing == 0) is_ready_.notify_all();
  }
}

void Loader::give_back(std::size_t slot) {
  {
    const std::scoped_lock lock(mutex_);
    slots_[slot].state = Slot::State::free;
    fill_free_slots();
  }
  has_work_.notify_all();
}

}  // namespace fullwatt::engine
