#include "fullwatt/record/spool_writer.hpp"

#include <cerrno>
#include <cstring>
#include <ctime>
#include <new>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace fullwatt::record {
namespace {

constexpr std::size_t kLongestText = 4096;

std::uint64_t clock_ns(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(now.tv_nsec);
}

/// A file of that size whose blocks are on the disk, or why not. What was begun is taken away again.
base::Result<int> reserved_file(const std::string& path, std::uint64_t bytes) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0)
    return base::fail(base::Error::Kind::unavailable, "cannot create " + path + ": " + std::strerror(errno));
  const int code = ::posix_fallocate(file, 0, static_cast<off_t>(bytes));
  if (code == 0) return file;
  ::close(file);
  ::unlink(path.c_str());
  return base::fail(base::Error::Kind::unavailable, "cannot reserve " + path + ": " + std::strerror(code),
                    "Free some space, or name another folder with FULLWATT_HOME.");
}

}  // namespace

std::uint64_t now_ns() {
  return clock_ns(CLOCK_MONOTONIC);
}

base::Result<SpoolWriter*> SpoolWriter::create(const std::string& path, Role role, int rank, std::uint64_t bytes) {
  const auto file = reserved_file(path, bytes);
  if (!file) return std::unexpected(file.error());
  void* mapping = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *file, 0);
  ::close(*file);
  if (mapping == MAP_FAILED)
    return base::fail(base::Error::Kind::unavailable, "cannot map " + path + ": " + std::strerror(errno));
  auto* writer = new SpoolWriter(mapping, bytes);
  auto& header = writer->header();
  const bool steps = role != Role::worker;
  header.version = kFormatVersion;
  header.role = role;
  header.pid = static_cast<std::uint32_t>(::getpid());
  header.rank = rank;
  header.opened_ns = now_ns();
  header.opened_wall_ns = clock_ns(CLOCK_REALTIME);
  header.file_bytes = bytes;
  header.trend_capacity = steps ? kTrendBuckets : 0;
  header.step_capacity = steps ? kStepRing : 0;
  const auto before = kHeaderBytes + header.trend_capacity * sizeof(Trend) + header.step_capacity * sizeof(Step);
  header.record_capacity = (bytes - before) / sizeof(Record);
  header.trend_steps_per_bucket = 1;
  auto* bytes_at = static_cast<std::byte*>(mapping);
  writer->trend_ = reinterpret_cast<Trend*>(bytes_at + kHeaderBytes);
  writer->steps_ = reinterpret_cast<Step*>(bytes_at + kHeaderBytes + header.trend_capacity * sizeof(Trend));
  writer->records_ = reinterpret_cast<Record*>(bytes_at + before);
  header.windows.exchange(0, std::memory_order_acq_rel);  // in place of a fence, which the thread sanitizer cannot see
  header.magic = kMagic;                                  // last: a file without it was never ready
  return writer;
}

SpoolWriter::SpoolWriter(void* mapping, std::uint64_t bytes) : mapping_(mapping), bytes_(bytes) {
  header_ = new (mapping) Header{};
}

SpoolWriter::~SpoolWriter() {
  ::munmap(mapping_, bytes_);
}

Record* SpoolWriter::reserve(std::uint64_t slots) {
  const auto at = header_->record_next.fetch_add(slots, std::memory_order_relaxed);
  if (at + slots <= header_->record_capacity) return records_ + at;
  header_->records_dropped.fetch_add(1, std::memory_order_relaxed);
  return nullptr;
}

bool SpoolWriter::append(const Record& record) {
  auto* slot = reserve(1);
  if (slot == nullptr) return false;
  *slot = record;
  slot->kind = Kind::empty;
  std::atomic_ref(slot->kind).store(record.kind, std::memory_order_release);
  return true;
}

std::uint32_t SpoolWriter::text(std::string_view bytes) {
  bytes = bytes.substr(0, kLongestText);
  if (bytes.empty()) return 0;
  const std::lock_guard lock(texts_mutex_);
  if (const auto known = texts_.find(std::string(bytes)); known != texts_.end()) return known->second;
  const auto slots = 1 + (bytes.size() + sizeof(Record) - 1) / sizeof(Record);
  auto* slot = reserve(slots);
  if (slot == nullptr) return 0;
  const auto id = static_cast<std::uint32_t>(texts_.size() + 1);
  std::memcpy(slot + 1, bytes.data(), bytes.size());
  slot->id = id;
  slot->a = bytes.size();
  slot->start_ns = now_ns();
  std::atomic_ref(slot->kind).store(Kind::text, std::memory_order_release);
  texts_.emplace(bytes, id);
  return id;
}

void SpoolWriter::say(Kind kind, std::string_view text_) {
  Record record{};
  record.kind = kind;
  record.id = text(text_);
  record.start_ns = now_ns();
  append(record);
}

void SpoolWriter::step(const Step& step) {
  const auto count = header_->step_count.load(std::memory_order_relaxed);
  steps_[count % header_->step_capacity] = step;
  header_->last_step_ns.store(step.end_ns, std::memory_order_relaxed);
  header_->step_count.store(count + 1, std::memory_order_release);
}

std::uint64_t SpoolWriter::records_left() const {
  const auto next = header_->record_next.load(std::memory_order_relaxed);
  return next < header_->record_capacity ? header_->record_capacity - next : 0;
}

}  // namespace fullwatt::record
