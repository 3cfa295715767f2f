#pragma once

#include <cstddef>

/// The part of NVRTC that is called here, declared by hand so that no CUDA toolkit is needed to build.
/// Source of every type: nvrtc.h of CUDA 13.0; they are the same since CUDA 11.2.
namespace fullwatt::vendor::nvrtc::abi {

using Result = int;  ///< nvrtcResult
using Program = struct ProgramTag*;

using GetErrorString = const char*(Result result);
using GetArchitectureCount = Result(int* count);
using GetArchitectures = Result(int* architectures);
using CreateProgram = Result(Program* program, const char* source, const char* name, int headers,
                             const char* const* header_sources, const char* const* header_names);
using CompileProgram = Result(Program program, int count, const char* const* options);
using DestroyProgram = Result(Program* program);
using GetSize = Result(Program program, std::size_t* bytes);
using GetText = Result(Program program, char* text);

}  // namespace fullwatt::vendor::nvrtc::abi
