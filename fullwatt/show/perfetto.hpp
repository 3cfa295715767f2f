#pragma once

#include <ostream>

#include "fullwatt/model/run.hpp"

namespace fullwatt::show {

/// A run for ui.perfetto.dev and chrome://tracing: steps, phases, lines, calls, kernels by stream, and figures over
/// time.
void write_perfetto(const model::Run& run, std::ostream& out);

}  // namespace fullwatt::show
