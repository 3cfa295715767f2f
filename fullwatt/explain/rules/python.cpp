// The GPU waits while Python works.

#include <algorithm>
#include <array>
#include <iterator>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/explain/rules/lines.hpp"
#include "fullwatt/explain/rules/rule.hpp"
#include "fullwatt/explain/settings_in_force.hpp"

namespace fullwatt::explain {
namespace {

/// More lines than this are noise in a report; the source with its milliseconds shows them all.
constexpr std::size_t kMostLines = 3;
/// A single line has to cost this share of a step before it is named. Without a GPU the line's own operators compute in
/// it, unseen: then more.
constexpr double kLeastLine = 0.03;
constexpr double kLeastLineOnCpu = 0.1;

double least_line(const Case& examined) {
  return examined.on_gpu() ? kLeastLine : kLeastLineOnCpu;
}

Match priced(const Case& examined, const LineGroup& group) {
  Match match;
  match.at(group.site).costs(group.ms, examined.gain(group.change), examined.step_ms());
  match.saw(examined.on_gpu() ? "GPU waits" : "Python works", ms_text(group.ms) + " ms of a step",
            match.facts["place"]);
  const auto see = [&](const model::Site& line) {
    const auto text = source_line(examined.evidence.run, line);
    if (!text.empty()) match.saw("line", base::printable(text, 160), place_of(line));
  };
  see(group.site);
  if (group.loop != nullptr) return match;  // its lines are told as a loop
  for (const auto& line : group.lines) {
    if (line != group.site) see(line);
  }
  return match;
}

/// Names that the loop fills and that the samples of the data set already have.
std::string stored_fields(const Case& examined, const SourceLoop& loop) {
  std::vector<std::string> found;
  for (const auto& file : examined.source.files) {
    for (const auto& field : file.fields) {
      const auto same = [&](const std::string& name) {
        return base::contains(name, field) || base::contains(field, name);
      };
      const bool listed = std::ranges::find(found, field) != found.end();
      if (!listed && field.size() > 2 && std::ranges::any_of(loop.writes, same)) found.push_back(field);
    }
  }
  return base::join(found, ", ");
}

/// Whether a loop stands in the training loop itself.
bool stands_in_training(const Case& examined, const LineGroup& group) {
  const auto* file = examined.source.file(group.site.file);
  return file != nullptr && std::ranges::any_of(file->loops, [&](const SourceLoop& loop) {
           return loop.trains && loop.line < group.loop->line && group.loop->end_line <= loop.end_line;
         });
}

bool sounds_like_targets(const SourceLoop& loop) {
  return std::ranges::any_of(loop.writes, [](const std::string& written) {
    return mentions(base::lower(written), {"target", "label", "heat", "mask", "truth", "gt", "offset", "hot", "map"});
  });
}

/// Loops in which something else is computed than what a model shall learn: those of an environment that is played, of
/// what a program keeps for itself, and what is done to a batch in the training loop.
bool makes_no_targets(const Case& examined, const LineGroup& group) {
  if (stands_in_training(examined, group) && !sounds_like_targets(*group.loop))
    return stored_fields(examined, *group.loop).empty();
  const auto name = base::lower(group.loop->function.empty() ? group.site.function : group.loop->function);
  const auto last = name.substr(name.rfind('.') + 1);
  const bool plays = last == "step" || last == "reset" || last == "rollout" || last == "simulate" ||
                     mentions(name, {"env.", "simulat", "metric", "accuracy"});
  return plays && stored_fields(examined, *group.loop).empty();
}

Match looped(const Case& examined, const LineGroup& group) {
  auto match = priced(examined, group);
  match.saw("loops inside each other", std::to_string(group.loop->depth),
            fmt::format("lines {}–{}", group.loop->line, group.loop->end_line));
  return match;
}

Matches targets_recomputed(const Case& examined) {
  Matches matches;
  for (const auto& group : target_loops(examined)) {
    if (examined.share(group.ms) < least_line(examined) || matches.size() == kMostLines) break;
    if (makes_no_targets(examined, group)) continue;
    auto match = looped(examined, group);
    const auto function = group.loop->function.empty() ? group.site.function : group.loop->function;
    match.fact("function", function == "<module>" ? std::string(base::file_name(group.site.file)) : function)
        .fact("count", std::to_string(group.loop->depth));
    match.fact("name", base::join(group.loop->writes, ", "));
    const auto stored = stored_fields(examined, *group.loop);
    if (!stored.empty()) match.saw("the data set already gives", stored, "source");
    matches.push_back(std::move(match));
  }
  return matches;
}

/// Other loops that cost.
Matches work_in_loops(const Case& examined) {
  Matches matches;
  for (const auto& group : target_loops(examined)) {
    if (examined.share(group.ms) < least_line(examined) || matches.size() == kMostLines) break;
    if (makes_no_targets(examined, group)) matches.push_back(looped(examined, group));
  }
  return matches;
}

bool logs(const Case& examined, const model::Site& site) {
  const auto text = source_line(examined.evidence.run, site);
  return mentions(
      text, {"print(", "logger.", "logging.", ".log(", "log_metric", "add_scalar", "add_image", "add_histogram",
             "wandb.", "mlflow.", "tqdm", "set_postfix", "set_description", "pbar.", "writer.write", "sys.stdout"});
}

/// Without a DataLoader the script makes its batches itself.
bool makes_data(const Case& examined, const model::Site& site) {
  if (!examined.facts().loaders.empty()) return false;
  const auto text = base::lower(source_line(examined.evidence.run, site) + " " + site.function);
  return mentions(text, {"batch", "load", "imread", "image.open", "np.random", "random.", "from_numpy", "sample",
                         "generate", "read", "augment", "transform", "dataset"});
}

/// Without a GPU nothing tells the operators that a line calls from Python's own work in it: a line that the model's
/// time is spent at, too, is the model's.
bool belongs_to_model(const Case& examined, const LineGroup& line) {
  if (examined.on_gpu()) return false;
  double computing = 0;
  for (const auto cause : {cause::kForward, cause::kBackward, cause::kOptimizer}) {
    for (const auto& other : lines_of_cause(examined, cause)) {
      if (std::ranges::find(line.lines, other.site) != line.lines.end()) computing += other.ms;
    }
  }
  return computing >= line.ms / 2;
}

enum class Kind { work, log, data };

Matches python_lines(const Case& examined, Kind wanted) {
  Matches matches;
  const auto targets = target_loops(examined);
  const auto over_parameters = examined.on_gpu() ? parameter_loops(examined) : std::vector<LineGroup>{};
  for (const auto& group : work_of_cause(examined, cause::kPython, least_line(examined) * examined.step_ms())) {
    if (matches.size() == kMostLines) break;
    if (stands_in(targets, group.site) || stands_in(over_parameters, group.site)) continue;  // named as loops
    const auto kind = logs(examined, group.site)         ? Kind::log
                      : makes_data(examined, group.site) ? Kind::data
                                                         : Kind::work;
    if (kind != wanted || (kind == Kind::work && belongs_to_model(examined, group))) continue;
    matches.push_back(priced(examined, group));
  }
  return matches;
}

Matches python_per_step(const Case& examined) {
  auto matches = work_in_loops(examined);
  std::ranges::move(python_lines(examined, Kind::work), std::back_inserter(matches));
  if (matches.size() > kMostLines) matches.resize(kMostLines);
  return matches;
}
Matches logging_each_step(const Case& examined) {
  return python_lines(examined, Kind::log);
}
Matches data_in_main_process(const Case& examined) {
  return python_lines(examined, Kind::data);
}

Matches garbage_collection(const Case& examined) {
  const double charged = examined.charged(cause::kGarbage);
  if (charged <= 0) return {};
  double seconds = 0;
  for (const auto& step : examined.evidence.steps.all) {
    seconds += step.phase_ms[static_cast<std::size_t>(HostPhase::garbage)] / 1e3;
  }
  Match match;
  match.near({main_line(examined, cause::kGarbage)});
  match.costs(charged, examined.gain(Change::without(cause::kGarbage)), examined.step_ms());
  match.fact("seconds", seconds_text(seconds)).fact("count", std::to_string(examined.evidence.steps.all.size()));
  match.saw("full collections", seconds_text(seconds) + " s", "gc callbacks");
  if (const auto threshold = examined.facts().setting("gc.threshold")) match.saw("gc.get_threshold()", *threshold);
  return {match};
}

constexpr std::array kRules{
    Rule{"targets-recomputed", targets_recomputed},        Rule{"python-per-step", python_per_step},
    Rule{"logging-each-step", logging_each_step},          Rule{"loader-data-in-main-process", data_in_main_process},
    Rule{"garbage-collection-pauses", garbage_collection},
};

}  // namespace

std::span<const Rule> python_rules() {
  return kRules;
}

}  // namespace fullwatt::explain
