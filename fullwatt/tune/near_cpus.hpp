#pragma once

#include <set>
#include <string>

#include "fullwatt/base/files.hpp"

namespace fullwatt::tune {

/// Those of some CPUs that stand beside a GPU, on a machine where memory and PCIe are spread over several sockets, as
/// the kernel lists them: "0-7,16-23". Empty where all of them do, or none, or nothing is known.
std::string near_cpus(base::Files& files, const std::string& bdf, const std::set<int>& usable);

}  // namespace fullwatt::tune
