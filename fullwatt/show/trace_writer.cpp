#include "fullwatt/show/trace_writer.hpp"

#include <cmath>

#include <fmt/format.h>

#include "fullwatt/model/json.hpp"

namespace fullwatt::show {
namespace {

std::string microseconds(std::uint64_t nanoseconds) {
  return fmt::format("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000);
}

}  // namespace

std::string quoted(std::string_view text) {
  return model::dump(model::Json(text));
}

TraceWriter::TraceWriter(std::ostream& out, std::uint64_t origin_ns) : out_(out), origin_ns_(origin_ns) {
  out_ << "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
}

TraceWriter::~TraceWriter() {
  out_ << "\n]}\n";
}

void TraceWriter::event(std::string_view text) {
  out_ << (first_ ? "\n" : ",\n") << text;
  first_ = false;
}

std::string TraceWriter::time(std::uint64_t at_ns) const {
  return microseconds(at_ns > origin_ns_ ? at_ns - origin_ns_ : 0);
}

void TraceWriter::process(std::uint64_t process, std::string_view name, int order) {
  event(fmt::format(R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":{}}}}})", process, name));
  event(fmt::format(R"({{"ph":"M","name":"process_sort_index","pid":{},"args":{{"sort_index":{}}}}})", process, order));
}

void TraceWriter::thread(Track track, std::string_view name) {
  event(fmt::format(R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":{}}}}})", track.process,
                    track.thread, name));
  event(fmt::format(R"({{"ph":"M","name":"thread_sort_index","pid":{},"tid":{},"args":{{"sort_index":{}}}}})",
                    track.process, track.thread, track.thread));
}

void TraceWriter::slice(Track track, std::string_view name, std::uint64_t start_ns, std::uint64_t end_ns,
                        std::string_view arguments) {
  event(fmt::format(R"({{"ph":"X","pid":{},"tid":{},"ts":{},"dur":{},"name":{},"args":{}}})", track.process,
                    track.thread, time(start_ns), microseconds(end_ns > start_ns ? end_ns - start_ns : 0), name,
                    arguments));
}

void TraceWriter::instant(Track track, std::string_view name, std::uint64_t at_ns) {
  event(fmt::format(R"({{"ph":"i","s":"p","pid":{},"tid":{},"ts":{},"name":{}}})", track.process, track.thread,
                    time(at_ns), name));
}

void TraceWriter::counter(std::uint64_t process, std::string_view name, std::uint64_t at_ns, double value) {
  if (!std::isfinite(value)) return;
  event(fmt::format(R"({{"ph":"C","pid":{},"ts":{},"name":{},"args":{{"value":{}}}}})", process, time(at_ns), name,
                    value));
}

void TraceWriter::flow(std::uint64_t id, Track from, std::uint64_t from_ns, Track to, std::uint64_t to_ns) {
  event(fmt::format(R"({{"ph":"s","cat":"launch","name":"launch","id":{},"pid":{},"tid":{},"ts":{}}})", id,
                    from.process, from.thread, time(from_ns)));
  event(fmt::format(R"({{"ph":"f","bp":"e","cat":"launch","name":"launch","id":{},"pid":{},"tid":{},"ts":{}}})", id,
                    to.process, to.thread, time(to_ns)));
}

}  // namespace fullwatt::show
