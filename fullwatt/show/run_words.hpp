#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fullwatt/model/explanation.hpp"
#include "fullwatt/show/words.hpp"

/// The sentences of a run's report, the same in every format.
namespace fullwatt::show {

/// The length that the parts of a step sum to; the median step where there are no parts.
double step_length(const model::Explanation& explanation);
/// What a step would take with everything removed that a gain is known for; nothing where none is.
std::optional<double> reachable_ms(const model::Explanation& explanation);
/// How many times as fast the training is without what a finding costs; nothing where that is not known.
std::optional<double> speedup(double step_ms, const model::Finding& finding);
/// The label that tells what mending a finding saves.
std::string_view saving_label(const model::Finding& finding);

/// "train.py:41", from the run's folder; empty when unknown. Text from outside, not yet escaped.
std::string place_of(const model::RunInfo& info, std::string_view file, int line);
std::string place_of(const model::RunInfo& info, const model::Site& site);
/// "exit code 0", "signal 9", "stopped by you".
std::string ending(const model::RunInfo& info, Language language);

/// Words for a label that may be missing: "fact-" + name, and the name itself where the catalogue has none.
std::string label_or(std::string_view prefix, std::string_view name, Language language);

/// The verdict in one sentence with its numbers.
std::string headline(const model::Explanation& explanation, Language language);
/// What to change first and what that would give; that there is nothing, where there is nothing.
std::string first_change(const model::Explanation& explanation, Language language);
/// What the program did instead of training, and what to do about it: for runs without a step.
struct NoSteps {
  std::string seen;
  std::vector<RenderedStep> advice;
};
NoSteps no_steps(const model::Explanation& explanation, Language language);
/// How far steps differ: their number, median and range.
std::string step_spread(const model::Explanation& explanation, Language language);
/// Why the GPU's lane is missing; empty when it is there.
/// Remarks and reasons arise in English; those that the catalogue knows are told in the reader's language.
std::string remark_text(const std::string& remark, Language language);

std::string no_kernels(const model::Explanation& explanation, Language language);
/// What a step would take with all causes removed, and with a perfect loader; as far as known.
std::vector<std::string> outlook(const model::Explanation& explanation, Language language);
/// What fullwatt itself cost, and how much it could explain.
std::vector<std::string> own_account(const model::Explanation& explanation, Language language);

/// Whether little use of a resource is a loss: power, compute and time at work are what a card is bought for, of memory
/// or PCIe one uses what one needs.
bool is_rated(std::string_view resource);
constexpr double kWellUsed = 0.7;
constexpr double kHardlyUsed = 0.3;

/// What is in force of a fix, or why it is not, and what the program had set. Text from outside, not yet escaped.
std::string fix_remark(const model::FixState& fix, Language language);

/// Facts of the run for a table of two columns. Text from outside, not yet escaped.
std::vector<std::pair<std::string, std::string>> run_facts(const model::Explanation& explanation, Language language);

/// The place of a finding's or a cause's largest line; empty when unknown.
std::string place_of(const model::RunInfo& info, const model::Finding& finding);
std::string place_of(const model::RunInfo& info, const model::Cause& cause);

/// Parts of a step as reports group them, each in order of size; `busy` stays empty without a GPU.
struct CauseGroups {
  std::vector<const model::Cause*> idle;
  std::vector<const model::Cause*> busy;
  double idle_ms = 0;
  double busy_ms = 0;
};
CauseGroups cause_groups(const model::Explanation& explanation);

}  // namespace fullwatt::show
