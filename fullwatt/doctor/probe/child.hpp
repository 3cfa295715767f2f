#pragma once

#include <string>

namespace fullwatt::doctor {

/// The hidden commands `fullwatt __probe nvml|cuda`: load one vendor library, ask it everything, print the answers as
/// JSON. Each runs in a process of its own, because vendor libraries hang and crash. Returns the exit code.
int run_probe_child(const std::string& which);

}  // namespace fullwatt::doctor
