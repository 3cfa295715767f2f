#include <algorithm>
#include <map>
#include <utility>

#include "fullwatt/explain/facts.hpp"
#include "fullwatt/explain/lenient.hpp"

namespace fullwatt::explain {
namespace {

using lenient::Json;

/// A later fact of the same id replaces the earlier one.
template <class T>
void keep(std::vector<T>& list, T fact) {
  const auto same = std::ranges::find(list, fact.id, &T::id);
  if (same == list.end()) {
    list.push_back(std::move(fact));
  } else {
    *same = std::move(fact);
  }
}

/// Python's None, a text or a number, as text.
std::string loose(const Json& json, const char* name) {
  const auto& value = lenient::at(json, name);
  if (value.is_null()) return {};
  return value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// "9.0", also from [9, 0].
std::string capability(const Json& json) {
  const auto& value = lenient::at(json, "capability");
  if (value.is_array() && value.size() == 2 && value[0].is_number_integer() && value[1].is_number_integer()) {
    return std::to_string(value[0].get<int>()) + "." + std::to_string(value[1].get<int>());
  }
  return loose(json, "capability");
}

void process(const Json& json, ProcessFacts& facts) {
  facts.process = {.pid = lenient::integer<int>(json, "pid").value_or(0),
                   .parent = lenient::integer<int>(json, "parent").value_or(0),
                   .rank = lenient::integer<int>(json, "rank"),
                   .local_rank = lenient::integer<int>(json, "local_rank"),
                   .world_size = lenient::integer<int>(json, "world_size"),
                   .argv = lenient::texts(json, "argv"),
                   .executable = lenient::text(json, "executable"),
                   .python = loose(json, "python"),
                   .main = lenient::text(json, "main"),
                   .prefixes = lenient::texts(json, "prefixes"),
                   .torch = loose(json, "torch"),
                   .cuda = loose(json, "cuda"),
                   .cudnn = loose(json, "cudnn")};
}

void gpu(const Json& json, ProcessFacts& facts) {
  GpuFact fact{.index = lenient::integer<int>(json, "index").value_or(0),
               .name = lenient::text(json, "name"),
               .uuid = lenient::text(json, "uuid"),
               .capability = capability(json),
               .memory_bytes = lenient::integer<std::uint64_t>(json, "memory_bytes")};
  const auto same = std::ranges::find(facts.gpus, fact.index, &GpuFact::index);
  if (same == facts.gpus.end()) {
    facts.gpus.push_back(std::move(fact));
  } else {
    *same = std::move(fact);
  }
}

void loader(const Json& json, ProcessFacts& facts) {
  keep(facts.loaders, {.id = lenient::integer<int>(json, "id").value_or(0),
                       .site = lenient::site(json, "site"),
                       .trains = lenient::flag(json, "trains").value_or(false),
                       .dataset = lenient::text(json, "dataset"),
                       .dataset_length = lenient::integer<std::uint64_t>(json, "dataset_length"),
                       .iterable = lenient::flag(json, "iterable").value_or(false),
                       .batch_size = lenient::integer<std::uint64_t>(json, "batch_size"),
                       .num_workers = lenient::integer<int>(json, "num_workers"),
                       .pin_memory = lenient::flag(json, "pin_memory"),
                       .prefetch_factor = lenient::integer<int>(json, "prefetch_factor"),
                       .persistent_workers = lenient::flag(json, "persistent_workers"),
                       .follows_epochs = lenient::flag(json, "follows_epochs").value_or(false),
                       .drop_last = lenient::flag(json, "drop_last"),
                       .shuffle = loose(json, "shuffle"),
                       .batches = lenient::integer<std::uint64_t>(json, "batches"),
                       .context = loose(json, "context"),
                       .collate = loose(json, "collate")});
}

void model(const Json& json, ProcessFacts& facts) {
  keep(facts.models, {.id = lenient::integer<int>(json, "id").value_or(0),
                      .class_name = lenient::text(json, "class"),
                      .parameters = lenient::integer<std::uint64_t>(json, "parameters").value_or(0),
                      .trainable = lenient::integer<std::uint64_t>(json, "trainable").value_or(0),
                      .bytes = lenient::integer<std::uint64_t>(json, "bytes").value_or(0),
                      .dtypes = lenient::counts(json, "dtypes"),
                      .devices = lenient::counts(json, "devices"),
                      .modules = lenient::counts(json, "modules"),
                      .training = lenient::flag(json, "training"),
                      .compiled = lenient::flag(json, "compiled"),
                      .wrapper = lenient::text(json, "wrapper"),
                      .channels_last = lenient::number(json, "channels_last"),
                      .batchnorm_bias = lenient::number(json, "batchnorm_bias"),
                      .batch_norms = lenient::number(json, "batch_norms"),
                      .site = lenient::site(json, "site")});
}

void optimizer(const Json& json, ProcessFacts& facts) {
  keep(facts.optimizers, {.id = lenient::integer<int>(json, "id").value_or(0),
                          .class_name = lenient::text(json, "class"),
                          .site = lenient::site(json, "site"),
                          .fused = lenient::flag(json, "fused"),
                          .foreach = lenient::flag(json, "foreach"),
                          .capturable = lenient::flag(json, "capturable"),
                          .groups = lenient::integer<int>(json, "groups"),
                          .of_torch = lenient::flag(json, "of_torch").value_or(false),
                          .tensors = lenient::integer<std::uint64_t>(json, "tensors"),
                          .devices = lenient::counts(json, "devices"),
                          .lr = lenient::number(json, "lr")});
}

std::vector<std::uint64_t> shape(const Json& json) {
  std::vector<std::uint64_t> read;
  const auto& list = lenient::at(json, "shape");
  if (!list.is_array()) return read;
  for (const auto& size : list) read.push_back(size.is_number_unsigned() ? size.get<std::uint64_t>() : 0);
  return read;
}

void input(const Json& json, ProcessFacts& facts) {
  facts.input = InputFact{.shape = shape(json),
                          .dtype = lenient::text(json, "dtype"),
                          .device = lenient::text(json, "device"),
                          .contiguous = lenient::flag(json, "contiguous"),
                          .channels_last = lenient::flag(json, "channels_last"),
                          .samples = lenient::integer<std::uint64_t>(json, "samples")};
}

void settings(const Json& json, ProcessFacts& facts) {
  const auto when = lenient::text(json, "when");
  facts.settings[when.empty() ? "end" : when] = lenient::values(json, "values");
}

void environment(const Json& json, ProcessFacts& facts) {
  facts.environment = lenient::values(json, "values");
}

void autocast(const Json& json, ProcessFacts& facts) {
  facts.autocasts.push_back({.device = lenient::text(json, "device"),
                             .dtype = loose(json, "dtype"),
                             .enabled = lenient::flag(json, "enabled").value_or(false),
                             .site = lenient::site(json, "site")});
}

void scaler(const Json& json, ProcessFacts& facts) {
  facts.scaler =
      ScalerFact{.enabled = lenient::flag(json, "enabled").value_or(false), .site = lenient::site(json, "site")};
}

void compile(const Json& json, ProcessFacts& facts) {
  facts.compiles.push_back({.site = lenient::site(json, "site"),
                            .mode = loose(json, "mode"),
                            .backend = loose(json, "backend"),
                            .dynamic = loose(json, "dynamic"),
                            .fullgraph = lenient::flag(json, "fullgraph"),
                            .target = loose(json, "target")});
}

void compile_stats(const Json& json, ProcessFacts& facts) {
  facts.compile_stats = CompileStatsFact{.frames = lenient::number(json, "frames").value_or(0),
                                         .recompiles = lenient::number(json, "recompiles").value_or(0),
                                         .graph_breaks = lenient::counts(json, "graph_breaks"),
                                         .break_at = lenient::site(json, "break_at"),
                                         .cache_misses = lenient::number(json, "cache_misses").value_or(0),
                                         .seconds = lenient::number(json, "seconds").value_or(0)};
}

void graphs(const Json& json, ProcessFacts& facts) {
  facts.graph_captures = lenient::number(json, "captures").value_or(0);
}

void distributed(const Json& json, ProcessFacts& facts) {
  facts.distributed = DistributedFact{.backend = loose(json, "backend"),
                                      .world_size = lenient::integer<int>(json, "world_size").value_or(1),
                                      .find_unused_parameters = lenient::flag(json, "find_unused_parameters"),
                                      .bucket_cap_mb = lenient::number(json, "bucket_cap_mb"),
                                      .static_graph = lenient::flag(json, "static_graph"),
                                      .gradient_as_bucket_view = lenient::flag(json, "gradient_as_bucket_view")};
}

void data_parallel(const Json& json, ProcessFacts& facts) {
  facts.data_parallel =
      DataParallelFact{.devices = lenient::texts(json, "devices"), .site = lenient::site(json, "site")};
}

void argument(const Json& json, ProcessFacts& facts) {
  facts.arguments.push_back({.parser = lenient::site(json, "parser"),
                             .values = lenient::values(json, "values"),
                             .defaults = lenient::values(json, "defaults"),
                             .given = lenient::texts(json, "given")});
}

void config_file(const Json& json, ProcessFacts& facts) {
  facts.config_files.push_back({.path = lenient::text(json, "path"), .site = lenient::site(json, "site")});
}

std::vector<UnalignedFact> unaligned(const Json& json) {
  std::vector<UnalignedFact> found;
  const auto& list = lenient::at(json, "unaligned");
  if (!list.is_array()) return found;
  for (const auto& entry : list) {
    found.push_back(
        {lenient::text(entry, "dtype"), lenient::number(entry, "flops").value_or(0), lenient::text(entry, "sizes")});
  }
  return found;
}

void flops(const Json& json, ProcessFacts& facts) {
  facts.flops = FlopsFact{.forward = lenient::number(json, "forward").value_or(0),
                          .backward = lenient::number(json, "backward").value_or(0),
                          .total = lenient::number(json, "total").value_or(0),
                          .operations = lenient::number(json, "operations").value_or(0),
                          .by_dtype = lenient::counts(json, "by_dtype"),
                          .by_op = lenient::counts(json, "by_op"),
                          .bytes = lenient::counts(json, "bytes"),
                          .unaligned = unaligned(json),
                          .reason = lenient::text(json, "reason")};
}

void attention(const Json& json, ProcessFacts& facts) {
  facts.attention = lenient::counts(json, "backend");
}

void memory(const Json& json, ProcessFacts& facts) {
  facts.memory =
      MemoryFact{.device = loose(json, "device"),
                 .peak_allocated_bytes = lenient::integer<std::uint64_t>(json, "peak_allocated_bytes").value_or(0),
                 .peak_reserved_bytes = lenient::integer<std::uint64_t>(json, "peak_reserved_bytes").value_or(0),
                 .training_peak_bytes = lenient::integer<std::uint64_t>(json, "training_peak_bytes"),
                 .card_bytes = lenient::integer<std::uint64_t>(json, "card_bytes"),
                 .allowed_bytes = lenient::integer<std::uint64_t>(json, "allowed_bytes"),
                 .beside_bytes = lenient::integer<std::uint64_t>(json, "beside_bytes"),
                 .retries = lenient::number(json, "retries").value_or(0),
                 .oom = lenient::number(json, "oom").value_or(0),
                 .device_allocations = lenient::number(json, "device_allocations").value_or(0)};
}

std::uint64_t when(const Json& json) {
  return lenient::integer<std::uint64_t>(json, "at_ns").value_or(0);
}

void lengths(const Json& json, ProcessFacts& facts) {
  facts.lengths = LengthsFact{.varies = lenient::flag(json, "varies").value_or(false),
                              .read = lenient::integer<std::uint64_t>(json, "read").value_or(0),
                              .of = lenient::integer<std::uint64_t>(json, "of").value_or(0),
                              .longest = lenient::numbers(json, "longest")};
}

void epoch(const Json& json, ProcessFacts& facts) {
  facts.epochs.push_back({.loader = lenient::integer<int>(json, "loader").value_or(0),
                          .at_ns = when(json),
                          .batches = lenient::integer<std::uint64_t>(json, "batches"),
                          .number = lenient::integer<std::uint64_t>(json, "number")});
}

void batch(const Json& json, ProcessFacts& facts) {
  facts.batch_device = lenient::text(json, "device");
}

void padding(const Json& json, ProcessFacts& facts) {
  facts.padding_functions.push_back(loose(json, "function"));
}

void iterators(const Json& json, ProcessFacts& facts) {
  facts.iterators.push_back({.loader = lenient::integer<int>(json, "loader").value_or(0),
                             .at_ns = when(json),
                             .begun = lenient::number(json, "begun").value_or(0),
                             .ended = lenient::number(json, "ended").value_or(0)});
}

void profiler(const Json& json, ProcessFacts& facts) {
  facts.profilers.push_back({.at_ns = when(json),
                             .who = lenient::text(json, "who"),
                             .state = lenient::text(json, "state"),
                             .site = lenient::site(json, "site")});
}

void evaluation(const Json& json, ProcessFacts& facts) {
  facts.evaluations.push_back(lenient::site(json, "site"));
}

void save(const Json& json, ProcessFacts& facts) {
  facts.saves.push_back({.at_ns = when(json),
                         .site = lenient::site(json, "site"),
                         .bytes = lenient::number(json, "bytes").value_or(0),
                         .seconds = lenient::number(json, "seconds").value_or(0)});
}

void agent(const Json& json, ProcessFacts& facts) {
  facts.agent = AgentFact{.calls = lenient::number(json, "calls").value_or(0),
                          .errors = lenient::number(json, "errors").value_or(0),
                          .off = lenient::text(json, "off")};
}

void device_check(const Json& json, ProcessFacts& facts) {
  facts.device_check = DeviceCheckFact{.parameters = lenient::counts(json, "parameters"),
                                       .inputs = lenient::counts(json, "inputs"),
                                       .buffers = lenient::counts(json, "buffers"),
                                       .consistent = lenient::flag(json, "consistent"),
                                       .uuid = lenient::text(json, "uuid"),
                                       .allocated_bytes = lenient::integer<std::uint64_t>(json, "allocated_bytes")};
}

void fix(const Json& json, ProcessFacts& facts) {
  keep(facts.fixes, FixFact{.id = lenient::text(json, "id"),
                            .state = lenient::text(json, "state"),
                            .text = lenient::text(json, "text"),
                            .once_s = lenient::number(json, "once_s")});
}

void fix_override(const Json& json, ProcessFacts& facts) {
  facts.fix_overrides.push_back(
      {.id = lenient::text(json, "id"), .what = lenient::text(json, "what"), .site = lenient::site(json, "site")});
}

/// Those that had another turn come last: each was measured on top of the ones before it.
void turn(const Json& json, ProcessFacts& facts) {
  TurnFact told{.id = lenient::text(json, "id"),
                .state = lenient::text(json, "state"),
                .text = lenient::text(json, "text"),
                .kept = lenient::flag(json, "kept"),
                .without_ms = lenient::numbers(json, "without_ms"),
                .with_ms = lenient::numbers(json, "with_ms"),
                .once_s = lenient::number(json, "once_s"),
                .without_ns = lenient::numbers(json, "without_ns"),
                .with_ns = lenient::numbers(json, "with_ns")};
  std::erase_if(facts.turns, [&](const auto& before) { return before.id == told.id; });
  facts.turns.push_back(std::move(told));
}

void target(const Json& json, ProcessFacts& facts) {
  facts.target = TargetFact{.torch = lenient::text(json, "torch"),
                            .gpu = lenient::text(json, "gpu"),
                            .model = lenient::text(json, "model"),
                            .script = lenient::text(json, "script")};
}

using Reader = void (*)(const Json&, ProcessFacts&);
constexpr std::pair<std::string_view, Reader> kReaders[] = {
    {"process", process},
    {"gpu", gpu},
    {"loader", loader},
    {"model", model},
    {"optimizer", optimizer},
    {"input", input},
    {"settings", settings},
    {"environment", environment},
    {"autocast", autocast},
    {"scaler", scaler},
    {"compile", compile},
    {"compile_stats", compile_stats},
    {"graphs", graphs},
    {"distributed", distributed},
    {"data_parallel", data_parallel},
    {"argument", argument},
    {"config_file", config_file},
    {"flops", flops},
    {"attention", attention},
    {"memory", memory},
    {"lengths", lengths},
    {"epoch", epoch},
    {"batch", batch},
    {"padding", padding},
    {"iterators", iterators},
    {"profiler", profiler},
    {"evaluation", evaluation},
    {"save", save},
    {"agent", agent},
    {"device_check", device_check},
    {"fix", fix},
    {"fix_override", fix_override},
    {"turn", turn},
    {"target", target},
};

/// A loader that is made anew for every epoch, in the same line and alike, is one.
void unite_loaders(ProcessFacts& facts) {
  std::vector<LoaderFact> found;
  std::map<int, int> united;
  for (const auto& loader : facts.loaders) {
    const auto is_alike = [&](LoaderFact other) {
      other.id = loader.id;
      other.trains = loader.trains;
      return loader.site.known() && other == loader;
    };
    const auto alike = std::ranges::find_if(found, is_alike);
    united[loader.id] = alike == found.end() ? loader.id : alike->id;
    if (alike == found.end()) {
      found.push_back(loader);
    } else {
      alike->trains = alike->trains || loader.trains;
    }
  }
  facts.loaders = std::move(found);
  for (auto& epoch : facts.epochs) {
    if (const auto one = united.find(epoch.loader); one != united.end()) epoch.loader = one->second;
  }
}

}  // namespace

ProcessFacts parse_facts(const model::TrainingProcess& recorded) {
  ProcessFacts facts;
  for (const auto& fact : recorded.facts) {
    const auto json = Json::parse(fact.json, nullptr, false);
    if (!json.is_object()) continue;
    for (const auto& [kind, read] : kReaders) {
      if (kind == fact.kind) read(json, facts);
    }
  }
  unite_loaders(facts);
  return facts;
}

}  // namespace fullwatt::explain
