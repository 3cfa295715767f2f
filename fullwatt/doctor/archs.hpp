#pragma once

#include <string>
#include <vector>

namespace fullwatt::doctor {

/// Whether a build with these architectures ("sm_80", "sm_90a", "compute_120") has code for a GPU of this compute
/// capability ("8.9"): a binary for X.y runs on X.z with z ≥ y, PTX for X.y on anything from X.y on, and
/// architecture-specific code ("90a", "100f") on exactly its own.
bool covers(const std::vector<std::string>& archs, const std::string& compute_capability);

/// The lowest and highest compute capability of such a list, "7.5"; empty when it holds none.
std::string lowest_arch(const std::vector<std::string>& archs);
std::string highest_arch(const std::vector<std::string>& archs);

}  // namespace fullwatt::doctor
