#pragma once

#include "fullwatt/model/machine.hpp"

namespace fullwatt::doctor {

/// Asks this machine's kernel, package database and logs. Never blocks on a device; takes some milliseconds.
model::System read_system();

/// Lines of a kernel log that can matter to a GPU.
bool matters_in_kernel_log(std::string_view line);

}  // namespace fullwatt::doctor
