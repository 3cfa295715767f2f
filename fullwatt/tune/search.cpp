#include "fullwatt/tune/search.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "catalog/fixes.hpp"

#include "fullwatt/tune/remaining.hpp"

namespace fullwatt::tune {
namespace {

constexpr double kLeastSpeedup = 1.05;  ///< what a single start can tell from noise; the proof decides in the end
constexpr int kMostLooks = 3;
/// A step so much shorter, and what was dropped may weigh enough: what a loader takes stays while kernels get faster.
constexpr double kMuchShorter = 0.8;

double mean_ms(const model::Trial& trial) {
  const auto sum = std::accumulate(trial.step_ms.begin(), trial.step_ms.end(), 0.0);
  return trial.step_ms.empty() ? 0 : sum / static_cast<double>(trial.step_ms.size());
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const auto half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// How much longer a step is with the fix, pair by pair as the agent decides: the machine may be at another pace from
/// pair to pair.
double median_ratio(const model::Turn& turn) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < std::min(turn.with_ms.size(), turn.without_ms.size()); ++i)
    ratios.push_back(turn.with_ms[i] / turn.without_ms[i]);
  return median(std::move(ratios));
}

const model::FixState* state_of(const model::Trial& trial, const std::string& fix) {
  const auto state = std::ranges::find(trial.fixes, fix, &model::FixState::id);
  return state != trial.fixes.end() ? &*state : nullptr;
}

bool is_refused(const model::Trial& trial, const std::string& fix) {
  const auto* state = state_of(trial, fix);
  return state != nullptr && state->state == "refused";
}

/// What made the fix end by itself; empty when nothing did.
std::string why_given_up(const model::Trial& trial, const std::string& fix) {
  const auto* state = state_of(trial, fix);
  return state != nullptr && (state->state == "refused" || state->state == "undone") ? state->text : std::string();
}

/// Why the trial says nothing for this fix; empty when it does.
std::string why_not(const model::Trial& trial, const std::string& fix) {
  if (is_refused(trial, fix)) return why_given_up(trial, fix);
  if (!trial.failure.empty()) return trial.failure;
  const auto* state = state_of(trial, fix);
  if (state == nullptr) return "it was not applied";
  return state->state == "waiting" ? "not in force by the end: it waits " + state->text : why_given_up(trial, fix);
}

/// Whether the settings of a fix do what the other does.
bool brings(const model::PlannedFix& fix, std::string_view other) {
  const auto is_set = [&](const char* name) { return fix.settings.contains(name) && fix.settings.at(name) == "true"; };
  return fix.id == "loader-workers" &&
         ((other == "loader-pinned" && is_set("pinned")) || (other == "loader-persistent" && is_set("persistent")));
}

/// Everything that one search knows.
class Search {
 public:
  Search(const Starts& starts, const SearchLimits& limits, const SearchListener& listener, const model::Plan& needed)
      : starts_(starts), limits_(limits), listener_(listener) {
    found_.plan = found_.needed = needed;
  }

  /// What the loader hid shows only in another look: turns are taken after that, unless time runs short.
  model::Tuning run() {
    for (int number = 0; number < kMostLooks; ++number) {
      const auto kept_before = found_.plan.fixes.size();
      const auto look = seen_ ? std::exchange(seen_, std::nullopt) : new_look();
      if (!look || !take(*look, number == 0)) break;
      for (const auto& candidate : sorted_out(look->candidates)) listener_.worth_it(new_entry(candidate));
      const auto has_time = [&] { return number + 1 < kMostLooks && may_start() && !limits_.is_late(); };
      try_one_by_one(sorted_out(look->candidates), has_time());
      const bool looks_again = seen_ || (has_time() && found_.plan.fixes.size() != kept_before);
      if (!looks_again) try_in_turns(sorted_out(look->candidates));
      if (found_.plan.fixes.size() == kept_before) break;
    }
    if (found_.failure.empty() && found_.plan.fixes.size() != fixes_looked_at_) look_at_the_end();
    drop_disproved(found_.remaining, found_.tried);
    return std::move(found_);
  }

 private:
  /// Empty while there may be another start.
  std::string why_no_start() const { return used_ < limits_.starts ? limits_.why_over() : "no start was left"; }
  bool may_start() const { return why_no_start().empty(); }

  std::optional<Look> new_look() {
    if (!may_start()) return std::nullopt;
    ++used_;
    return starts_.look(found_.plan, {});
  }

  /// Advice is about the program with everything that was found, as is what remains; of another one there is none.
  void look_at_the_end() {
    const auto look = new_look();
    if (look && take(*look, false)) return;
    found_.advice.clear();
    found_.remaining.clear();
  }

  /// The program as it is now; false when it does not run.
  bool take(const Look& look, bool is_first) {
    const auto& trial = look.trial;
    if (!trial.failure.empty()) {
      if (is_first) found_.failure = trial.failure;
      return false;
    }
    found_.advice = look.advice;
    found_.remaining = look.remaining;
    fixes_looked_at_ = found_.plan.fixes.size();
    found_.after_ms = mean_ms(trial);
    found_.gpu_after = trial.gpu;
    if (is_first) {
      found_.before_ms = found_.after_ms;
      found_.gpu_before = trial.gpu;
      found_.samples_per_step = trial.samples_per_step;
    }
    return true;
  }

  /// What is worth a try now: not what was tried before, unless it may give more than then. Those that promise most
  /// come first.
  std::vector<Candidate> sorted_out(std::vector<Candidate> all) const {
    std::erase_if(all, [&](const auto& candidate) {
      const auto before = std::ranges::find(found_.tried, candidate.fix.id,
                                            [](const auto& tried) -> const auto& { return tried.fix.id; });
      return before != found_.tried.end() && !may_give_more(candidate, *before);
    });
    std::ranges::stable_sort(all, std::ranges::greater(),
                             [](const auto& candidate) { return candidate.predicted.ms.value_or(0); });
    return all;
  }

  /// Another fix of the loader opens the way for those that take turns; they, by a shorter step, for those of the
  /// loader.
  bool may_give_more(const Candidate& now, const model::TriedFix& dropped) const {
    if (dropped.kept || !dropped.speedup()) return false;
    if (catalog::find_fix(now.fix.id)->live) return opened_way_;
    const auto promise = now.predicted.ms.value_or(now.predicted.high_ms.value_or(0));
    return found_.after_ms < kMuchShorter * *dropped.before_ms && promise > (kLeastSpeedup - 1) * found_.after_ms;
  }

  /// The fix of the plan that another one cannot stand beside.
  const model::PlannedFix* excluded_by(const std::string& fix) const {
    const auto found = std::ranges::find_if(
        found_.plan.fixes, [&](const auto& kept) { return catalog::exclude_each_other(kept.id, fix); });
    return found != found_.plan.fixes.end() ? &*found : nullptr;
  }

  /// What promises most is looked at while it is tried: most likely it is kept, and then the next look has been taken.
  void try_one_by_one(const std::vector<Candidate>& candidates, bool looks) {
    for (const auto& candidate : candidates) {
      const auto brings_it = [&](const auto& fix) { return brings(fix, candidate.fix.id); };
      if (catalog::find_fix(candidate.fix.id)->live || std::ranges::any_of(found_.plan.fixes, brings_it)) continue;
      const auto used_before = used_;
      try_by_a_start(new_entry(candidate), looks);
      looks = looks && used_ == used_before;
    }
  }

  void try_by_a_start(model::TriedFix tried, bool looks = false) {
    if (const auto* other = excluded_by(tried.fix.id)) {
      tried.reason = "not beside " + other->id;
    } else if (!may_start()) {
      leave_open(tried);
    } else {
      measure(tried, looks);
    }
    put(std::move(tried));
  }

  void leave_open(model::TriedFix& tried) const {
    tried.reason = why_no_start();
    tried.is_open = true;
  }

  void measure(model::TriedFix& tried, bool looks) {
    auto plan = found_.plan;
    plan.fixes.push_back(tried.fix);
    ++used_;
    auto look = looks ? starts_.look(plan, tried.fix.id) : Look{starts_.measure(plan, tried.fix.id), {}, {}};
    const auto& trial = look.trial;
    tried.reason = why_not(trial, tried.fix.id);
    if (!tried.reason.empty()) return;
    tried.before_ms = found_.after_ms;
    tried.after_ms = mean_ms(trial);
    tried.before_watts = found_.gpu_after.watts;
    tried.after_watts = trial.gpu.watts;
    if (const auto once = trial.once_s.find(tried.fix.id); once != trial.once_s.end()) tried.once_s = once->second;
    tried.kept = *tried.speedup() >= kLeastSpeedup;
    if (!tried.kept) tried.reason = "not faster beyond noise";
    if (!tried.kept) return;
    found_.gpu_after = trial.gpu;
    seen_ = looks ? std::optional(std::move(look)) : std::nullopt;
  }

  /// All that are live in one start, in the catalogue's order. One that breaks the program is left out, and the others
  /// go on in a new start, as do those that a short program ends before.
  void try_in_turns(const std::vector<Candidate>& candidates) {
    std::vector<model::TriedFix> open;
    for (const auto& candidate : candidates) {
      if (catalog::find_fix(candidate.fix.id)->live) open.push_back(new_entry(candidate));
    }
    std::ranges::stable_sort(open, {}, [](const auto& tried) { return catalog::find_fix(tried.fix.id)->order; });
    opened_way_ = false;
    bool program_is_short = false;
    while (!open.empty()) {
      if (!may_start()) {
        for (auto& tried : open) {
          leave_open(tried);
          put(std::move(tried));
        }
        return;
      }
      ++used_;
      open = one_start_in_turns(std::move(open), program_is_short);
    }
  }

  /// Gives those that are left to try. Where turns cannot be taken, as in a training of several processes, each gets a
  /// start of its own.
  std::vector<model::TriedFix> one_start_in_turns(std::vector<model::TriedFix> open, bool& program_is_short) {
    Turning turning{found_.plan, {}, found_.after_ms, program_is_short};
    for (const auto& tried : open) turning.fixes.push_back(tried.fix);
    const auto trial = starts_.in_turns(turning);
    program_is_short = trial.failure.empty();
    if (std::ranges::any_of(trial.turns, [](const auto& turn) { return turn.id.empty(); })) {
      for (auto& tried : open) try_by_a_start(std::move(tried));
      return {};
    }
    std::vector<model::TriedFix> left;
    const bool gets_shorter_turns = program_is_short && !turning.program_is_short;
    const bool got_on = std::ranges::any_of(trial.turns, is_measured) || gets_shorter_turns ||
                        (!trial.failure.empty() && !trial.turns.empty());
    // In the order in which they were measured: each stands on those before it.
    std::ranges::stable_sort(
        open, {}, [&](const auto& tried) { return std::ranges::find(trial.turns, tried.fix.id, &model::Turn::id); });
    for (auto& tried : open) {
      const auto turn = std::ranges::find(trial.turns, tried.fix.id, &model::Turn::id);
      const bool is_begun = turn != trial.turns.end();
      // What was under way when the program failed may be the reason; what was when it ended is not.
      const bool waits =
          !is_begun || (trial.failure.empty() && !is_measured(*turn) && !is_refused(trial, tried.fix.id));
      if (waits && got_on) {
        left.push_back(std::move(tried));
        continue;
      }
      judge(tried, is_begun ? &*turn : nullptr, trial);
      put(std::move(tried));
    }
    return left;
  }

  static bool is_measured(const model::Turn& turn) { return !turn.with_ms.empty() && !turn.without_ms.empty(); }

  /// Turns may be taken at another pace of the machine than that of the last look: what they tell is the ratio.
  void judge(model::TriedFix& tried, const model::Turn* turn, const model::Trial& trial) const {
    if (turn == nullptr || !is_measured(*turn)) {
      const bool was_reached = turn != nullptr || !trial.failure.empty() || is_refused(trial, tried.fix.id);
      if (was_reached) tried.reason = why_not(trial, tried.fix.id);
      if (tried.reason.empty()) tried.reason = "the program ended before it was measured";
      return;
    }
    tried.before_ms = found_.after_ms;
    tried.after_ms = found_.after_ms * median_ratio(*turn);
    tried.once_s = turn->once_s;
    if (turn->watts) {
      tried.before_watts = turn->watts->without;
      tried.after_watts = turn->watts->with;
    }
    tried.kept = turn->kept;
    if (tried.kept) return;
    tried.reason = why_given_up(trial, tried.fix.id);
    if (tried.reason.empty()) tried.reason = "not faster beyond noise";
  }

  static model::TriedFix new_entry(const Candidate& candidate) {
    model::TriedFix tried;
    tried.fix = candidate.fix;
    tried.why = candidate.why;
    tried.predicted = candidate.predicted;
    return tried;
  }

  /// Tells of it, and takes it into the plan where it pays. What is known of an earlier try of it is replaced.
  void put(model::TriedFix tried) {
    listener_.tried(tried);
    if (tried.kept) {
      tried.fix.speedup = tried.speedup();
      found_.plan.fixes.push_back(tried.fix);
      std::ranges::stable_sort(found_.plan.fixes, {}, [](const auto& fix) { return catalog::find_fix(fix.id)->order; });
      found_.after_ms = *tried.after_ms;
      opened_way_ = opened_way_ || !catalog::find_fix(tried.fix.id)->live;
    }
    std::erase_if(found_.tried, [&](const auto& before) { return before.fix.id == tried.fix.id; });
    found_.tried.push_back(std::move(tried));
  }

  const Starts& starts_;
  const SearchLimits& limits_;
  const SearchListener& listener_;
  model::Tuning found_;
  std::optional<Look> seen_;         ///< at the program with the present plan, taken while its last fix was tried
  std::size_t fixes_looked_at_ = 0;  ///< of the plan, in the last look
  int used_ = 0;
  bool opened_way_ = false;  ///< a fix with a start of its own was kept since turns were taken last
};

}  // namespace

model::Tuning search(const Starts& starts, const SearchLimits& limits, const SearchListener& listener,
                     const model::Plan& needed) {
  return Search(starts, limits, listener, needed).run();
}

}  // namespace fullwatt::tune
