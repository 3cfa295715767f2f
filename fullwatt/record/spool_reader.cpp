#include "fullwatt/record/spool_reader.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <span>
#include <sstream>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fullwatt/base/text.hpp"

namespace fullwatt::record {
namespace {

/// The header's plain values. Its atomics lie in memory as the numbers they hold.
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && sizeof(std::atomic<std::uint64_t>) == 8);

template <class T>
T read_at(std::string_view bytes, std::size_t offset) {
  T value{};
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

template <class T>
std::vector<T> read_many(std::string_view bytes, std::size_t offset, std::uint64_t count) {
  std::vector<T> values;
  if (offset >= bytes.size()) return values;
  values.resize(std::min<std::uint64_t>(count, (bytes.size() - offset) / sizeof(T)));
  if (values.empty()) return values;
  std::memcpy(values.data(), bytes.data() + offset, values.size() * sizeof(T));
  return values;
}

#define FULLWATT_HEADER(field) read_at<decltype(plain(std::declval<Header>().field))>(bytes, offsetof(Header, field))

template <class T>
T plain(const std::atomic<T>&);
template <class T>
T plain(const T&);

struct Sizes {
  std::uint64_t trend = 0;
  std::uint64_t steps = 0;
  std::uint64_t records = 0;

  std::size_t steps_at() const { return kHeaderBytes + trend * sizeof(Trend); }
  std::size_t records_at() const { return steps_at() + steps * sizeof(Step); }
};

base::Result<Sizes> sizes_of(std::string_view bytes) {
  const auto refuse = [](std::string why) {
    return base::fail(base::Error::Kind::bad_input, "the spool " + std::move(why));
  };
  if (bytes.size() < kHeaderBytes) return refuse("is shorter than its header");
  if (FULLWATT_HEADER(magic) != kMagic) return refuse("does not begin as one");
  if (const auto version = FULLWATT_HEADER(version); version != kFormatVersion) {
    return refuse("has format version " + std::to_string(version) + ", this program reads version " +
                  std::to_string(kFormatVersion));
  }
  const Sizes sizes{FULLWATT_HEADER(trend_capacity), FULLWATT_HEADER(step_capacity), FULLWATT_HEADER(record_capacity)};
  constexpr std::uint64_t kMost = 1ULL << 24U;
  if (sizes.trend > kMost || sizes.steps > kMost || sizes.records > kMost) return refuse("claims impossible sizes");
  return sizes;
}

model::TrainingProcess::Role role_of(Role role) {
  switch (role) {
    case Role::worker:
      return model::TrainingProcess::Role::worker;
    case Role::native:
      return model::TrainingProcess::Role::native;
    case Role::trainer:
      break;
  }
  return model::TrainingProcess::Role::trainer;
}

/// A frame as the agent writes it, "file:line:function". Files may hold colons, so it is read from the end.
model::Site site_of(std::string_view text) {
  const auto second = text.rfind(':');
  if (second == std::string_view::npos) return {std::string(text), 0, {}};
  const auto first = text.rfind(':', second - 1);
  if (second == 0 || first == std::string_view::npos) return {std::string(text), 0, {}};
  const auto line = base::number<int>(text.substr(first + 1, second - first - 1));
  return {std::string(text.substr(0, first)), line.value_or(0), std::string(text.substr(second + 1))};
}

/// Turns the stream of records into the lists of a Process.
class Sorter {
 public:
  explicit Sorter(model::TrainingProcess& process) : process_(process) {}

  void take(std::span<const Record> records) {
    for (std::size_t i = 0; i < records.size(); ++i) {
      if (records[i].kind == Kind::text) i += take_text(records, i);
    }
    for (std::size_t i = 0; i < records.size(); ++i) {
      if (records[i].kind == Kind::text) {
        i += text_slots(records[i]);
      } else {
        take(records[i]);
      }
    }
    sort();
  }

 private:
  static constexpr std::uint64_t kLongestText = 1ULL << 16U;

  static std::size_t text_slots(const Record& record) {
    return std::min<std::size_t>((std::min(record.a, kLongestText) + sizeof(Record) - 1) / sizeof(Record), 4096);
  }

  std::size_t take_text(std::span<const Record> records, std::size_t at) {
    const auto& record = records[at];
    const auto slots = text_slots(record);
    constexpr std::uint32_t kMostTexts = 1U << 20U;
    if (at + slots >= records.size() || record.id == 0 || record.id > kMostTexts) return slots;
    if (record.id >= process_.texts.size()) process_.texts.resize(record.id + 1);
    const auto length = std::min<std::size_t>(record.a, slots * sizeof(Record));
    process_.texts[record.id] = std::string(reinterpret_cast<const char*>(&records[at + 1]), length);
    return slots;
  }

  std::uint32_t stack(std::uint32_t text) {
    if (const auto known = stacks_.find(text); known != stacks_.end()) return known->second;
    std::vector<model::Site> frames;
    const std::string all = process_.text(text);
    for (auto line : base::split(all, '\n')) frames.push_back(site_of(line));
    process_.stacks.push_back(std::move(frames));
    const auto index = static_cast<std::uint32_t>(process_.stacks.size() - 1);
    stacks_.emplace(text, index);
    return index;
  }

  void take_activity(const Record& record) {
    model::GpuActivity activity;
    activity.start_ns = record.start_ns;
    activity.end_ns = record.start_ns + record.duration_ns;
    activity.correlation = record.a;
    activity.device = record.thread;
    if (record.kind == Kind::kernel) {
      activity.name = record.id;
      activity.stream = record.b;
      activity.blocks = record.c;
      activity.threads = record.d;
    } else {
      activity.kind = record.kind == Kind::copy ? model::GpuActivity::Kind::copy : model::GpuActivity::Kind::fill;
      activity.bytes = record.b;
      activity.stream = record.c;
      activity.copy_kind = static_cast<std::uint8_t>(record.d);
      activity.source_kind = static_cast<std::uint8_t>(record.d >> 8U);
      activity.destination_kind = static_cast<std::uint8_t>(record.d >> 16U);
    }
    process_.activities.push_back(activity);
  }

  void take(const Record& record) {
    const auto end = record.start_ns + record.duration_ns;
    switch (record.kind) {
      case Kind::phase:
        if (record.flags < kPhases)
          process_.phases.push_back({static_cast<model::Phase>(record.flags), record.start_ns, end, record.id});
        break;
      case Kind::sample:
        process_.samples.push_back({record.start_ns, stack(record.id)});
        break;
      case Kind::window:
        process_.windows.push_back({record.flags == static_cast<std::uint8_t>(Window::causes)
                                        ? model::RecordedWindow::Mode::causes
                                        : model::RecordedWindow::Mode::times,
                                    record.start_ns, end, record.a, record.b});
        break;
      case Kind::kernel:
      case Kind::copy:
      case Kind::fill:
        take_activity(record);
        break;
      case Kind::call:
        process_.calls.push_back({record.start_ns, end, record.id, record.a, record.b});
        break;
      case Kind::memory:
        process_.memory.push_back(
            {record.start_ns, static_cast<int>(record.id), record.a, record.b, record.c, record.d});
        break;
      case Kind::loss:
        process_.losses.push_back({record.start_ns, record.b, std::bit_cast<double>(record.a)});
        break;
      case Kind::fetch:
        process_.fetches.push_back(
            {static_cast<int>(record.id) - 1, record.start_ns, end, record.a, record.b, record.c, record.d});
        break;
      case Kind::mark:
        process_.marks.push_back({record.start_ns, process_.text(record.id)});
        break;
      case Kind::trouble:
        process_.troubles.push_back({record.start_ns, process_.text(record.id)});
        break;
      case Kind::empty:
      case Kind::text:
      case Kind::wait:
      case Kind::overhead:
        break;
    }
  }

  void sort() {
    const auto by_start = [](const auto& entry) { return entry.start_ns; };
    std::ranges::sort(process_.activities, {}, by_start);
    std::ranges::sort(process_.calls, {}, by_start);
    std::ranges::sort(process_.phases, {}, by_start);
    std::ranges::sort(process_.windows, {}, by_start);
    std::ranges::sort(process_.samples, {}, &model::LineSample::at_ns);
  }

  model::TrainingProcess& process_;
  std::map<std::uint32_t, std::uint32_t> stacks_;
};

std::vector<model::OptimizerStep> steps_of(std::string_view bytes, const Sizes& sizes, std::uint64_t count) {
  const auto ring = read_many<Step>(bytes, sizes.steps_at(), sizes.steps);
  std::vector<model::OptimizerStep> steps;
  if (ring.empty()) return steps;
  const auto kept = std::min<std::uint64_t>(count, ring.size());
  steps.reserve(kept);
  for (auto i = count - kept; i < count; ++i) {
    const auto& step = ring[i % ring.size()];
    // A slot that is just being overwritten holds another number.
    if (step.number != i + 1) continue;
    steps.push_back({step.number, step.end_ns, step.samples, step.optimizer, step.flags, step.phase_ns});
  }
  return steps;
}

std::vector<model::TrendBucket> trend_of(std::string_view bytes, const Sizes& sizes, std::uint64_t count) {
  std::vector<model::TrendBucket> trend;
  for (const auto& bucket : read_many<Trend>(bytes, kHeaderBytes, std::min(count, sizes.trend))) {
    trend.push_back({bucket.start_ns, bucket.end_ns, bucket.steps, bucket.samples, bucket.plain_steps,
                     bucket.plain_sum_ns, bucket.plain_min_ns, bucket.plain_max_ns, bucket.phase_ns});
  }
  return trend;
}

/// A file mapped for reading, gone with the object.
struct Mapping {
  void* at = MAP_FAILED;
  std::size_t bytes = 0;

  explicit Mapping(const std::string& path) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct stat status{};
    if (file >= 0 && ::fstat(file, &status) == 0 && status.st_size > 0) {
      bytes = static_cast<std::size_t>(status.st_size);
      at = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0);
    }
    if (file >= 0) ::close(file);
  }
  ~Mapping() {
    if (at != MAP_FAILED) ::munmap(at, bytes);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  std::string_view view() const {
    return at == MAP_FAILED ? std::string_view() : std::string_view(static_cast<char*>(at), bytes);
  }
};

base::Error unreadable(const std::string& path) {
  return {base::Error::Kind::bad_input, "cannot read the spool " + path, ""};
}

}  // namespace

base::Result<model::TrainingProcess> parse_spool(std::string_view bytes) {
  const auto sizes = sizes_of(bytes);
  if (!sizes) return std::unexpected(sizes.error());
  model::TrainingProcess process;
  process.pid = static_cast<int>(FULLWATT_HEADER(pid));
  process.role = role_of(FULLWATT_HEADER(role));
  process.rank = FULLWATT_HEADER(rank);
  process.thread = static_cast<int>(FULLWATT_HEADER(thread));
  process.opened_ns = FULLWATT_HEADER(opened_ns);
  process.opened_wall_ns = FULLWATT_HEADER(opened_wall_ns);
  process.closed = FULLWATT_HEADER(state) == State::closed;
  process.step_count = FULLWATT_HEADER(step_count);
  process.samples_total = FULLWATT_HEADER(samples_total);
  process.hook_cost_ns = static_cast<double>(FULLWATT_HEADER(hook_cost_ns));
  process.records_dropped = FULLWATT_HEADER(records_dropped);
  process.steps = steps_of(bytes, *sizes, process.step_count);
  process.trend = trend_of(bytes, *sizes, FULLWATT_HEADER(trend_count));
  const auto used = std::min(FULLWATT_HEADER(record_next), sizes->records);
  const auto records = read_many<Record>(bytes, sizes->records_at(), used);
  Sorter(process).take(records);
  const auto whole = sizes->records_at() + used * sizeof(Record);
  if (bytes.size() < whole) {
    process.troubles.push_back({process.opened_ns, "the spool was cut: " + std::to_string(bytes.size()) + " of " +
                                                       std::to_string(whole) + " bytes are there"});
  }
  return process;
}

base::Result<model::TrainingProcess> read_spool(const std::string& path) {
  const Mapping mapping(path);
  if (mapping.view().empty()) return std::unexpected(unreadable(path));
  // A copy: the file may shrink under the mapping, which would end the program.
  const std::string bytes(mapping.view());
  return parse_spool(bytes);
}

base::Result<std::uint64_t> used_bytes(const std::string& path) {
  const Mapping mapping(path);
  const auto bytes = mapping.view();
  const auto sizes = sizes_of(bytes);
  if (!sizes) return std::unexpected(sizes.error());
  const auto records = std::min(FULLWATT_HEADER(record_next), sizes->records);
  return std::min<std::uint64_t>(bytes.size(), sizes->records_at() + records * sizeof(Record));
}

base::Result<Progress> read_progress(const std::string& path) {
  const Mapping mapping(path);
  const auto bytes = mapping.view();
  const auto sizes = sizes_of(bytes);
  if (!sizes) return std::unexpected(sizes.error());
  Progress progress;
  progress.pid = static_cast<int>(FULLWATT_HEADER(pid));
  progress.role = role_of(FULLWATT_HEADER(role));
  progress.rank = FULLWATT_HEADER(rank);
  progress.state = FULLWATT_HEADER(state);
  progress.steps = FULLWATT_HEADER(step_count);
  progress.samples = FULLWATT_HEADER(samples_total);
  progress.last_step_ns = FULLWATT_HEADER(last_step_ns);
  progress.windows = FULLWATT_HEADER(windows);
  std::vector<std::uint64_t> lengths;
  std::uint64_t before = 0;
  const auto first = progress.steps > 51 ? progress.steps - 51 : 0;
  for (auto i = first; i < progress.steps && sizes->steps > 0; ++i) {
    const auto at = sizes->steps_at() + (i % sizes->steps) * sizeof(Step);
    if (at + sizeof(Step) > bytes.size()) break;
    const auto end = read_at<Step>(bytes, at).end_ns;
    if (before != 0 && end > before) lengths.push_back(end - before);
    before = end;
  }
  if (lengths.size() < 3) return progress;
  std::ranges::nth_element(lengths, lengths.begin() + static_cast<std::ptrdiff_t>(lengths.size() / 2));
  progress.recent_step_ns = lengths[lengths.size() / 2];
  return progress;
}

#undef FULLWATT_HEADER

}  // namespace fullwatt::record
