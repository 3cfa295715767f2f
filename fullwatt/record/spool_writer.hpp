#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "fullwatt/base/error.hpp"
#include "fullwatt/record/format.hpp"

namespace fullwatt::record {

/// CLOCK_MONOTONIC.
std::uint64_t now_ns();

/// Writes one process's spool. Any thread may append; a slot becomes visible when it is complete.
class SpoolWriter {
 public:
  /// Reserves the whole file on the disk before it is mapped.
  static base::Result<SpoolWriter*> create(const std::string& path, Role role, int rank, std::uint64_t bytes);
  ~SpoolWriter();
  SpoolWriter(const SpoolWriter&) = delete;
  SpoolWriter& operator=(const SpoolWriter&) = delete;

  Header& header() { return *header_; }
  /// Appends unless it is full; tells whether it did.
  bool append(const Record& record);
  /// The id of a text, the same for the same bytes; 0 when it is full.
  std::uint32_t text(std::string_view bytes);
  /// Appends a record that is only a text: a mark or a trouble.
  void say(Kind kind, std::string_view text);
  /// Takes the newest step into the ring.
  void step(const Step& step);
  /// That of a loader's worker does not.
  bool keeps_steps() const { return header_->step_capacity != 0; }
  std::uint64_t records_left() const;
  Trend* trend() { return trend_; }

 private:
  SpoolWriter(void* mapping, std::uint64_t bytes);
  Record* reserve(std::uint64_t slots);

  void* mapping_;
  std::uint64_t bytes_;
  Header* header_ = nullptr;
  Trend* trend_ = nullptr;
  Step* steps_ = nullptr;
  Record* records_ = nullptr;
  std::mutex texts_mutex_;
  std::unordered_map<std::string, std::uint32_t> texts_;
};

}  // namespace fullwatt::record
