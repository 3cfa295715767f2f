#include "fullwatt/engine/loader/loader.h"

#include <optional>
#include <system_error>

#include <unistd.h>

#include "fullwatt/engine/data/image_folder.hpp"
#include "fullwatt/engine/data/loader.hpp"
#include "fullwatt/engine/data/memory_data.hpp"

using fullwatt::engine::Dtype;

struct fullwatt_loader_data {
  explicit fullwatt_loader_data(std::shared_ptr<const fullwatt::engine::DataSet> opened) : data(std::move(opened)) {
    for (const auto& field : data->fields()) dtypes.emplace_back(to_string(field.dtype));
  }

  std::shared_ptr<const fullwatt::engine::DataSet> data;
  std::vector<std::string> dtypes;  ///< of the fields, as C reads texts
};

struct fullwatt_loader_batches {
  fullwatt_loader_batches(std::shared_ptr<const fullwatt::engine::DataSet> of,
                          const fullwatt::engine::LoaderOptions& options, fullwatt::engine::HostMemory memory)
      : data(std::move(of)), loader(*data, options, std::move(memory)) {}

  std::shared_ptr<const fullwatt::engine::DataSet> data;
  fullwatt::engine::Loader loader;
  pid_t process = ::getpid();
};

namespace fullwatt::engine {
namespace {

using base::Error;

struct LastError {
  Error::Kind kind = Error::Kind::unavailable;
  std::string text;
};
thread_local LastError last_error;

void tell(const Error& error) {
  last_error = {error.kind, error.remedy.empty() ? error.message : error.message + ". " + error.remedy};
}

/// Calls it; no exception may reach the caller, who has no C++.
template <class Value, class Function>
Value guarded(Value on_failure, Function function) {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    tell({Error::Kind::unavailable, "there is no memory left for the loader", "Take a smaller batch, or fewer ahead."});
  } catch (const std::system_error& failure) {
    tell({Error::Kind::unavailable, failure.what(), "Where it is about threads, use fewer workers (ulimit -u)."});
  } catch (const std::exception& failure) {
    tell({Error::Kind::unavailable, failure.what(), ""});
  }
  return on_failure;
}

fullwatt_loader_data* opened(base::Result<std::unique_ptr<DataSet>> data) {
  if (data) return new fullwatt_loader_data(*std::move(data));
  tell(data.error());
  return nullptr;
}

std::optional<Dtype> dtype_named(std::string_view name) {
  for (const auto dtype :
       {Dtype::boolean, Dtype::int8, Dtype::uint8, Dtype::int16, Dtype::uint16, Dtype::int32, Dtype::uint32,
        Dtype::int64, Dtype::uint64, Dtype::float16, Dtype::float32, Dtype::float64}) {
    if (to_string(dtype) == name) return dtype;
  }
  return std::nullopt;
}

base::Result<std::unique_ptr<DataSet>> open_arrays(std::span<const fullwatt_loader_field> arrays) {
  std::vector<MemoryArray> found;
  for (const auto& array : arrays) {
    const auto dtype = dtype_named(array.dtype);
    if (!dtype)
      return base::fail(Error::Kind::bad_input,
                        std::string("the array ") + array.name + " holds " + array.dtype + ", which is not known here",
                        "Make it booleans, integers or floats of 16 to 64 bits.");
    found.push_back({array.name,
                     *dtype,
                     {array.shape, array.shape + array.dimensions},
                     static_cast<const std::byte*>(array.memory)});
  }
  return in_memory(std::move(found));
}

/// The caller's blocks, in the order in which they stand.
HostMemory given(void* const* memory) {
  return {[memory](std::size_t) mutable { return static_cast<std::byte*>(*memory++); }, [](std::byte*) {}};
}

LoaderOptions one_epoch(const fullwatt_loader_options& options) {
  return {.batch = options.batch,
          .threads = options.threads,
          .ahead = options.ahead,
          .shuffled = options.shuffled != 0,
          .seed = options.seed,
          .part = options.part,
          .parts = options.parts,
          .drop_last = options.drop_last != 0,
          .first_epoch = options.epoch,
          .first_batch = options.first_batch,
          .epochs = options.epoch + 1};
}

int next(fullwatt_loader_batches& batches, std::uint32_t wait_ms, void* const* fresh, void** filled,
         std::int64_t& samples) {
  if (batches.process != ::getpid()) {
    tell({Error::Kind::bad_input, "this loop over the loader began before a fork, and its threads are in the parent",
          "Begin a new loop in the child."});
    return FULLWATT_LOADER_FAILED;
  }
  if (!batches.loader.is_ready(std::chrono::milliseconds(wait_ms))) return FULLWATT_LOADER_NOT_YET;
  auto batch = batches.loader.next();
  if (!batch) {
    tell(batch.error());
    return FULLWATT_LOADER_FAILED;
  }
  if (!*batch) return FULLWATT_LOADER_OVER;
  samples = (*batch)->samples();
  for (std::size_t i = 0; i < batches.data->fields().size(); ++i)
    filled[i] = (*batch)->exchange(i, static_cast<std::byte*>(fresh[i]));
  return FULLWATT_LOADER_BATCH;
}

}  // namespace
}  // namespace fullwatt::engine

namespace engine = fullwatt::engine;

int fullwatt_loader_version() {
  return FULLWATT_LOADER_VERSION;
}

const char* fullwatt_loader_error(int* kind) {
  *kind = static_cast<int>(engine::last_error.kind);
  return engine::last_error.text.c_str();
}

fullwatt_loader_data* fullwatt_loader_open_npy(const char* folder, const char* const* names,
                                               const char* const* patterns, std::uint32_t fields) {
  return engine::guarded<fullwatt_loader_data*>(nullptr, [&] {
    std::map<std::string, std::string> by_field;
    for (std::uint32_t i = 0; i < fields; ++i) by_field.emplace(names[i], patterns[i]);
    return engine::opened(engine::open_npy_folder(folder, by_field));
  });
}

fullwatt_loader_data* fullwatt_loader_open_images(const char* folder, std::int64_t height, std::int64_t width) {
  return engine::guarded<fullwatt_loader_data*>(
      nullptr, [&] { return engine::opened(engine::open_image_folder(folder, {height, width})); });
}

fullwatt_loader_data* fullwatt_loader_open_arrays(const fullwatt_loader_field* arrays, std::uint32_t count) {
  return engine::guarded<fullwatt_loader_data*>(nullptr,
                                                [&] { return engine::opened(engine::open_arrays({arrays, count})); });
}

std::int64_t fullwatt_loader_samples(const fullwatt_loader_data* data) {
  return data->data->samples();
}

std::uint32_t fullwatt_loader_fields(const fullwatt_loader_data* data, fullwatt_loader_field* fields,
                                     std::uint32_t most) {
  const auto& all = data->data->fields();
  for (std::size_t i = 0; i < all.size() && i < most; ++i)
    fields[i] = {all[i].name.c_str(), data->dtypes[i].c_str(), all[i].shape.data(),
                 static_cast<std::uint32_t>(all[i].shape.size()), nullptr};
  return static_cast<std::uint32_t>(all.size());
}

void fullwatt_loader_close(fullwatt_loader_data* data) {
  delete data;
}

fullwatt_loader_batches* fullwatt_loader_begin(const fullwatt_loader_data* data, const fullwatt_loader_options* options,
                                               void* const* memory) {
  return engine::guarded<fullwatt_loader_batches*>(nullptr, [&] {
    return new fullwatt_loader_batches(data->data, engine::one_epoch(*options), engine::given(memory));
  });
}

int fullwatt_loader_next(fullwatt_loader_batches* batches, std::uint32_t wait_ms, void* const* fresh, void** filled,
                         std::int64_t* samples) {
  return engine::guarded<int>(FULLWATT_LOADER_FAILED,
                              [&] { return engine::next(*batches, wait_ms, fresh, filled, *samples); });
}

void fullwatt_loader_end(fullwatt_loader_batches* batches) {
  if (batches->process == ::getpid()) delete batches;
}
