#include "fullwatt/explain/rules/lines.hpp"

#include <algorithm>
#include <map>

#include "fullwatt/base/text.hpp"

namespace fullwatt::explain {
namespace {

using Groups = std::map<model::Site, LineGroup>;

void add(LineGroup& group, const Charge& charge, std::map<model::Site, double>& by_line) {
  auto& line_ms = by_line[charge.line];
  line_ms += charge.ms;
  group.ms += charge.ms;
  if (charge.cause == cause::kSyncDrain) group.waiting_ms += charge.ms;
  if (!group.site.known() || line_ms > by_line[group.site]) group.site = charge.line;
  if (std::ranges::find(group.lines, charge.line) == group.lines.end()) group.lines.push_back(charge.line);
  group.change.removals.push_back({charge.cause, charge.line, charge.phase, 1});
}

std::vector<LineGroup> sorted(Groups groups) {
  std::vector<LineGroup> list;
  for (auto& [key, group] : groups) list.push_back(std::move(group));
  std::ranges::stable_sort(list, std::greater{}, &LineGroup::ms);
  return list;
}

bool inside(const SourceLoop& loop, int line) {
  return line >= loop.line && line <= loop.end_line;
}

/// A model's own loop over its layers, and what the loader runs, are other matters.
bool counts(const SourceLoop& loop) {
  const auto name = loop.function.substr(loop.function.rfind('.') + 1);
  return !loop.trains && name != "forward" && name != "__getitem__" && !base::contains(name, "collate");
}

const SourceLoop* loop_at(const SourceFile& file, int line) {
  for (const auto& loop : file.loops) {
    if (counts(loop) && inside(loop, line)) return &loop;
  }
  return nullptr;
}

/// A function that is called from inside a loop runs as part of it.
const SourceLoop* loop_calling(const Case& examined, const std::string& function) {
  for (const auto& file : examined.source.files) {
    for (const auto& call : file.calls) {
      const auto last = std::string_view(call.name).substr(call.name.rfind('.') + 1);
      if (!call.in_loop || last != function) continue;
      if (const auto* loop = loop_at(file, call.line); loop != nullptr && loop->depth >= 2) return loop;
    }
  }
  return nullptr;
}

bool of_host(const Charge& charge) {
  const auto one_of = {cause::kPython, cause::kLaunchBound, cause::kSyncDrain, cause::kCopyWait, cause::kForward};
  return !charge.gpu_busy && charge.line.known() && std::ranges::find(one_of, charge.cause) != one_of.end();
}

/// The loop, other than the training loop, that a line runs in; null when there is none.
const SourceLoop* loop_around(const Case& examined, const model::Site& site) {
  const auto* file = examined.source.file(site.file);
  if (file == nullptr) return nullptr;
  if (const auto* loop = loop_at(*file, site.line)) return loop;
  const auto* function = file->function_at(site.line);
  return function == nullptr ? nullptr : loop_calling(examined, function->name);
}

/// The function a line stands in, unless it is the one that trains: there each line has a purpose of its own.
const SourceFunction* function_called(const Case& examined, const model::Site& site) {
  const auto* file = examined.source.file(site.file);
  const auto* function = file == nullptr ? nullptr : file->function_at(site.line);
  if (function == nullptr) return nullptr;
  const bool trains = std::ranges::any_of(examined.evidence.attribution.charges, [&](const Charge& charge) {
    return (charge.phase == HostPhase::backward || charge.phase == HostPhase::optimizer) &&
           charge.line.file == site.file && file->function_at(charge.line.line) == function;
  });
  return trains ? nullptr : function;
}

/// What `other` costs comes on top; the place stays.
void join(LineGroup& group, LineGroup other) {
  std::ranges::move(other.lines, std::back_inserter(group.lines));
  group.ms += other.ms;
  group.waiting_ms += other.waiting_ms;
  group.change += other.change;
}

bool fills(const SourceLoop& loop) {
  return !loop.writes.empty() && (loop.depth >= 2 || loop.ranges > 0);
}

bool is_comprehension(const model::Site& site) {
  return site.function == "<genexpr>" || site.function == "<listcomp>" || site.function == "<dictcomp>";
}

/// Whether one of the lines speaks of a model's parameters.
bool goes_over_parameters(const Case& examined, const model::Site& site, int first, int last) {
  for (int line = first; line <= last; ++line) {
    const auto text = source_line(examined.evidence.run, {site.file, line, site.function});
    if (mentions(text, {"parameters()", "state_dict()", "buffers()", ".grad"})) return true;
  }
  return false;
}

}  // namespace

std::vector<LineGroup> lines_of_cause(const Case& examined, std::string_view cause) {
  Groups groups;
  std::map<model::Site, double> by_line;
  for (const auto& charge : examined.evidence.attribution.charges) {
    if (charge.gpu_busy || charge.cause != cause || !charge.line.known()) continue;
    add(groups[charge.line], charge, by_line);
  }
  return sorted(std::move(groups));
}

std::vector<LineGroup> work_of_cause(const Case& examined, std::string_view cause, double least) {
  Groups groups;
  std::map<const SourceFunction*, model::Site> places;  // the first line of a function is its costliest
  for (auto& line : lines_of_cause(examined, cause)) {
    if (line.ms < least) break;
    const auto* function = function_called(examined, line.site);
    const auto place = function == nullptr ? line.site : places.emplace(function, line.site).first->second;
    if (const auto found = groups.find(place); found != groups.end()) {
      join(found->second, std::move(line));
    } else {
      groups.emplace(place, std::move(line));
    }
  }
  return sorted(std::move(groups));
}

model::Site main_line(const Case& examined, std::string_view cause) {
  std::map<model::Site, double> by_line;
  const auto collect = [&](bool forward_only) {
    for (const auto& charge : examined.evidence.attribution.charges) {
      const bool one_line = charge.phase == HostPhase::backward || charge.phase == HostPhase::optimizer;
      if (charge.cause == cause && charge.line.known() && !(forward_only && one_line))
        by_line[charge.line] += charge.ms;
    }
  };
  collect(true);
  if (by_line.empty()) collect(false);
  const auto most = std::ranges::max_element(by_line, {}, [](const auto& item) { return item.second; });
  return most == by_line.end() ? model::Site{} : most->first;
}

model::Site call_of_model(const Case& examined) {
  const auto* model = examined.facts().largest_model();
  return model == nullptr ? model::Site{} : model->site;
}

model::Site set_or_spent(const Case& examined, std::initializer_list<std::string_view> names, std::string_view cause) {
  const auto set = set_at(examined.source, names);
  return set.known() ? set : main_line(examined, cause);
}

std::vector<LineGroup> target_loops(const Case& examined) {
  std::map<const SourceLoop*, LineGroup> groups;
  std::map<model::Site, double> by_line;
  for (const auto& charge : examined.evidence.attribution.charges) {
    if (!of_host(charge)) continue;
    const auto* loop = loop_around(examined, charge.line);
    if (loop == nullptr || !fills(*loop)) continue;
    groups[loop].loop = loop;
    add(groups[loop], charge, by_line);
  }
  Groups by_site;
  for (auto& [loop, group] : groups) {
    if (group.waiting_ms <= group.ms / 2) by_site.emplace(group.site, std::move(group));
  }
  return sorted(std::move(by_site));
}

std::vector<LineGroup> parameter_loops(const Case& examined) {
  std::map<model::Site, LineGroup> groups;
  std::map<model::Site, double> by_line;
  for (const auto& charge : examined.evidence.attribution.charges) {
    if (!of_host(charge) || charge.phase != HostPhase::rest) continue;
    const auto* loop = is_comprehension(charge.line) ? nullptr : loop_around(examined, charge.line);
    if (loop == nullptr && !is_comprehension(charge.line)) continue;
    const int first = loop == nullptr ? charge.line.line : loop->line;
    const int last = loop == nullptr ? charge.line.line : loop->end_line;
    if (!goes_over_parameters(examined, charge.line, first, last)) continue;
    auto& group = groups[{charge.line.file, first, {}}];
    group.loop = loop;
    add(group, charge, by_line);
  }
  return sorted(std::move(groups));
}

bool stands_in(const std::vector<LineGroup>& loops, const model::Site& site) {
  return std::ranges::any_of(
      loops, [&](const LineGroup& group) { return std::ranges::find(group.lines, site) != group.lines.end(); });
}

bool mentions(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::ranges::any_of(words, [&](std::string_view word) { return base::contains(text, word); });
}

}  // namespace fullwatt::explain
