#pragma once

#include <string_view>

/// The ids of a step's parts (model::Cause::id). Their words are in the catalogue's labels.
namespace fullwatt::explain::cause {

// The GPU is idle because the host …
constexpr std::string_view kDataWait = "data-wait";    ///< waits for the loader, or is the loader itself
constexpr std::string_view kSyncDrain = "sync-drain";  ///< waited for the GPU to finish, and now starts from nothing
constexpr std::string_view kCopyWait = "copy-wait";    ///< copies from or to pageable memory, blocking
constexpr std::string_view kAllocator = "allocator";   ///< allocates or frees device or pinned memory
constexpr std::string_view kLaunchBound = "launch-bound";  ///< launches kernels slower than the GPU runs them
constexpr std::string_view kModuleLoad = "module-load";    ///< loads kernels for the first time
constexpr std::string_view kPython = "python";             ///< runs code that launches nothing
constexpr std::string_view kGarbage = "garbage";
constexpr std::string_view kCompile = "compile";
constexpr std::string_view kCheckpoint = "checkpoint";
constexpr std::string_view kEvaluation = "evaluation";
constexpr std::string_view kUnexplained = "unexplained";

// The GPU works. Every kernel kind has its own id, "gpu-" and the kind: gpu-matmul, gpu-convolution, gpu-elementwise …
constexpr std::string_view kGpuPrefix = "gpu-";
constexpr std::string_view kGpuCopyToDevice = "gpu-copy-h2d";  ///< not hidden behind kernels
constexpr std::string_view kGpuCopyToHost = "gpu-copy-d2h";
constexpr std::string_view kGpuCopy = "gpu-copy";                 ///< within the GPU, fills too
constexpr std::string_view kCommunication = "gpu-communication";  ///< NCCL kernels, not hidden behind others

// Without kernel records: what the host computes. (data-wait, python, garbage as above.)
constexpr std::string_view kForward = "forward";  ///< all that is in no other phase
constexpr std::string_view kBackward = "backward";
constexpr std::string_view kOptimizer = "optimizer";

}  // namespace fullwatt::explain::cause
