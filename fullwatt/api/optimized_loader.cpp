#include "fullwatt/api/optimized_loader.hpp"

#include <limits>

#include "fullwatt/api/optimized_loader_state.hpp"
#include "fullwatt/api/outcome.hpp"
#include "fullwatt/engine/data/memory_data.hpp"
#include "fullwatt/engine/tensors.hpp"

namespace fullwatt::api {
namespace {

/// Throws what would otherwise end the training in its first batch.
void check(const engine::DataSet& data, std::int64_t batch) {
  for (const auto& field : data.fields()) {
    if (!engine::scalar_type(field.dtype))
      raise({base::Error::Kind::bad_input,
             "the field " + field.name + " holds " + std::string(engine::to_string(field.dtype)) +
                 ", which torch cannot compute with",
             "Save it as int32 or int64."});
  }
  if (data.samples() < batch)
    raise({base::Error::Kind::bad_input,
           "there are " + std::to_string(data.samples()) +
               " samples, fewer than train.batch_size: " + std::to_string(batch),
           "Take a smaller batch."});
}

}  // namespace

Samples from_arrays(const Fields& arrays) {
  Samples samples;
  std::vector<engine::MemoryArray> views;
  for (const auto& [name, given] : arrays) {
    const auto tensor = given.detach().cpu().contiguous();
    const auto dtype = engine::dtype_of(tensor.scalar_type());
    if (!dtype)
      raise({base::Error::Kind::bad_input, "the array " + base::printable(name, 100) + " is of a type that is not read",
             "Give whole numbers, or fractions such as float32."});
    views.push_back({name, *dtype, tensor.sizes().vec(), static_cast<const std::byte*>(tensor.const_data_ptr())});
    samples.kept.emplace(name, tensor);
  }
  samples.data = value_of(engine::in_memory(std::move(views)));
  return samples;
}

OptimizedLoader::State::State(Samples source, const engine::LoaderOptions& wanted, engine::Delivery way)
    : samples(std::move(source)), options(wanted), delivery(std::move(way)) {
  check(*samples.data, options.batch);
  per_epoch = static_cast<std::uint64_t>(samples.data->samples() / options.batch);
  options.epochs = std::numeric_limits<std::uint64_t>::max();
}

base::Result<Fields> OptimizedLoader::State::take() {
  current.clear();
  if (!batches) {
    options.first_epoch = epoch;
    options.first_batch = batch;
    auto made = engine::make_batches(*samples.data, options, delivery);
    if (!made) return std::unexpected(made.error());
    batches = *std::move(made);
  }
  auto next = batches->next();
  if (!next) return std::unexpected(next.error());
  if (++batch == per_epoch) {
    ++epoch;
    batch = 0;
  }
  auto fields = **std::move(next);  // there is always one more
  return samples.unpack ? samples.unpack(fields) : std::move(fields);
}

void OptimizedLoader::State::seek(std::uint64_t to_epoch, std::uint64_t to_batch) {
  epoch = to_epoch + to_batch / per_epoch;
  batch = to_batch % per_epoch;
  current.clear();
  batches.reset();
}

OptimizedLoader::Iterator::Iterator(OptimizedLoader& loader) : loader_(&loader), epoch_(loader.epoch()) {
  take();
}

void OptimizedLoader::Iterator::take() {
  auto& state = *loader_->state_;
  state.current = with_torch([&] { return value_of(state.take()); });
}

const Fields& OptimizedLoader::Iterator::operator*() const {
  return loader_->state_->current;
}

OptimizedLoader::Iterator& OptimizedLoader::Iterator::operator++() {
  is_over_ = loader_->epoch() != epoch_;
  if (!is_over_) take();
  return *this;
}

OptimizedLoader::OptimizedLoader(std::unique_ptr<State> state) : state_(std::move(state)) {}
OptimizedLoader::OptimizedLoader(OptimizedLoader&&) noexcept = default;
OptimizedLoader& OptimizedLoader::operator=(OptimizedLoader&&) noexcept = default;
OptimizedLoader::~OptimizedLoader() = default;

OptimizedLoader::Iterator OptimizedLoader::begin() {
  return Iterator(*this);
}

std::int64_t OptimizedLoader::samples() const {
  return state_->samples.data->samples();
}
std::uint64_t OptimizedLoader::batches_per_epoch() const {
  return state_->per_epoch;
}
std::uint64_t OptimizedLoader::epoch() const {
  return state_->epoch;
}
std::uint64_t OptimizedLoader::batch() const {
  return state_->batch;
}
void OptimizedLoader::seek(std::uint64_t epoch, std::uint64_t batch) {
  state_->seek(epoch, batch);
}

}  // namespace fullwatt::api
