#pragma once

#include "fullwatt/model/run.hpp"
#include "fullwatt/show/trace_writer.hpp"

namespace fullwatt::show {

/// Writes all that one process of a training left behind; `number` tells processes apart.
void write_process(TraceWriter& writer, const model::TrainingProcess& process, std::size_t number);

}  // namespace fullwatt::show
