#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>

namespace fullwatt::show {

/// A text as a JSON string with its quotes, whatever bytes it holds.
std::string quoted(std::string_view text);

/// Writes Chrome's trace format event by event, so that no run is too large; Perfetto reads it. Names and arguments are
/// JSON already.
class TraceWriter {
 public:
  struct Track {
    std::uint64_t process = 0;
    std::uint64_t thread = 0;
  };

  /// Times are written relative to `origin_ns`: as microseconds since boot they would lose digits.
  TraceWriter(std::ostream& out, std::uint64_t origin_ns);
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;
  ~TraceWriter();

  void process(std::uint64_t process, std::string_view name, int order);
  void thread(Track track, std::string_view name);
  void slice(Track track, std::string_view name, std::uint64_t start_ns, std::uint64_t end_ns,
             std::string_view arguments = "{}");
  void instant(Track track, std::string_view name, std::uint64_t at_ns);
  void counter(std::uint64_t process, std::string_view name, std::uint64_t at_ns, double value);
  /// An arrow from one slice to another that starts later.
  void flow(std::uint64_t id, Track from, std::uint64_t from_ns, Track to, std::uint64_t to_ns);

 private:
  void event(std::string_view text);
  std::string time(std::uint64_t at_ns) const;

  std::ostream& out_;
  std::uint64_t origin_ns_;
  bool first_ = true;
};

}  // namespace fullwatt::show
