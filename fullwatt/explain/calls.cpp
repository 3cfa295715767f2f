#include "fullwatt/explain/calls.hpp"

#include <algorithm>
#include <initializer_list>

#include "fullwatt/base/text.hpp"

namespace fullwatt::explain {
namespace {

using base::contains;

bool has_any(std::string_view name, std::initializer_list<std::string_view> parts) {
  return std::ranges::any_of(parts, [&](std::string_view part) { return contains(name, part); });
}

bool allocates(std::string_view name) {
  return has_any(name, {"cudaMalloc", "cudaFree", "cudaHostAlloc", "cudaHostRegister", "cudaHostUnregister",
                        "cuMemAlloc", "cuMemFree", "cuMemHostAlloc", "cuMemHostRegister", "cuMemCreate", "cuMemMap",
                        "cuMemUnmap", "cuMemRelease", "cuMemSetAccess", "cuMemAddress"});
}

bool loads_modules(std::string_view name) {
  return has_any(name, {"cuModuleLoad", "cuLibraryLoad", "cudaLibraryLoad", "cuLink", "cuModuleGetFunction",
                        "cuLibraryGet", "cudaLibraryGet", "cuKernelGetFunction"});
}

}  // namespace

std::string_view to_string(CallCategory category) {
  switch (category) {
    case CallCategory::launch:
      return "launch";
    case CallCategory::copy:
      return "copy";
    case CallCategory::sync:
      return "sync";
    case CallCategory::allocator:
      return "allocator";
    case CallCategory::module_load:
      return "module-load";
    case CallCategory::other:
      break;
  }
  return "other";
}

CallCategory classify_call(std::string_view name) {
  if (contains(name, "Synchronize")) return CallCategory::sync;
  // The old calls without Async return when the copy is done.
  if (contains(name, "Memcpy")) return contains(name, "Async") ? CallCategory::copy : CallCategory::sync;
  if (allocates(name)) return CallCategory::allocator;
  if (loads_modules(name)) return CallCategory::module_load;
  if (has_any(name, {"Launch", "Memset"})) return CallCategory::launch;
  return CallCategory::other;
}

}  // namespace fullwatt::explain
