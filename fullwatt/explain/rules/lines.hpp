#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fullwatt/explain/rules/rule.hpp"

namespace fullwatt::explain {

/// Lines of the user's code that belong together, and the time in which the GPU waits for them.
struct LineGroup {
  model::Site site;  ///< the costliest
  std::vector<model::Site> lines;
  const SourceLoop* loop = nullptr;  ///< the loop they stand in or are called from; null for a single line
  double ms = 0;                     ///< of a step
  double waiting_ms = 0;             ///< of it because the host waited for the GPU
  Change change;                     ///< a step without them
};

/// The lines of one cause, the costliest first.
std::vector<LineGroup> lines_of_cause(const Case& examined, std::string_view cause);

/// Those that cost at least `least` milliseconds; the ones of a function that the training loop calls are one group.
std::vector<LineGroup> work_of_cause(const Case& examined, std::string_view cause, double least);

/// The line that a cause costs most at. Backward pass and optimiser have one line each whatever they do: one of the
/// forward pass is preferred, which tells more.
model::Site main_line(const Case& examined, std::string_view cause);

/// Where the training calls its model: what concerns the whole of it is changed there.
model::Site call_of_model(const Case& examined);

/// Where the user's source makes a setting, by one of its names; where nothing makes it, the line it costs most at.
model::Site set_or_spent(const Case& examined, std::initializer_list<std::string_view> names, std::string_view cause);

/// Loops of the user's that run in every step, are not the training loop and fill arrays, the costliest first: lines
/// inside such a loop, or of a function called from inside it, are one group, whatever the GPU waits for there. A loop
/// that mostly waits for the GPU, as one over `.item()` does, is none.
std::vector<LineGroup> target_loops(const Case& examined);

/// Loops over a model's parameters, outside its layers, that launch something for each of them: norms, averages, decay
/// by hand. The costliest first.
std::vector<LineGroup> parameter_loops(const Case& examined);

/// Whether the line is one of theirs.
bool stands_in(const std::vector<LineGroup>& loops, const model::Site& site);

/// Whether the text holds one of the words.
bool mentions(std::string_view text, std::initializer_list<std::string_view> words);

}  // namespace fullwatt::explain
