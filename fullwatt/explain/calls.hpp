#pragma once

#include <string_view>

namespace fullwatt::explain {

/// What a call into CUDA is for.
enum class CallCategory { other, launch, copy, sync, allocator, module_load };
std::string_view to_string(CallCategory category);

/// By name, with or without the version that CUPTI appends.
CallCategory classify_call(std::string_view name);

}  // namespace fullwatt::explain
