#pragma once

#include <string>
#include <string_view>

#include "fullwatt/base/error.hpp"
#include "fullwatt/model/run.hpp"
#include "fullwatt/record/format.hpp"

namespace fullwatt::record {

/// Reads a spool, of a process that ended, was killed or still runs. One that is cut short gives what it holds; one
/// that is no spool, or of another version, is refused.
base::Result<model::TrainingProcess> read_spool(const std::string& path);
/// The same for bytes in memory, of unknown origin.
base::Result<model::TrainingProcess> parse_spool(std::string_view bytes);

/// The bytes that are in use, from the start of the file.
base::Result<std::uint64_t> used_bytes(const std::string& path);

/// How a process stands now; cheap enough to be asked twice a second.
struct Progress {
  int pid = 0;
  model::TrainingProcess::Role role = model::TrainingProcess::Role::trainer;
  int rank = -1;
  State state = State::watching;
  std::uint64_t steps = 0;
  std::uint64_t samples = 0;
  std::uint64_t last_step_ns = 0;
  std::uint32_t windows = 0;
  std::uint64_t recent_step_ns = 0;  ///< median of the newest steps, at most 50; 0 with fewer than three
};
base::Result<Progress> read_progress(const std::string& path);

}  // namespace fullwatt::record
