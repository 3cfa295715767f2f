#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fullwatt/base/reading.hpp"
#include "fullwatt/model/hardware.hpp"

namespace fullwatt::model {

/// CUresult values that decide a diagnosis; the words are in catalog/codes.
namespace cuda_code {
constexpr int kSuccess = 0;
constexpr int kOutOfMemory = 2;
constexpr int kNotInitialized = 3;
constexpr int kStubLibrary = 34;
constexpr int kDeviceUnavailable = 46;
constexpr int kNoDevice = 100;
constexpr int kInvalidDevice = 101;
constexpr int kNotLicensed = 102;
constexpr int kNoBinaryForGpu = 209;
constexpr int kEccUncorrectable = 214;
constexpr int kNvlinkUncorrectable = 220;
constexpr int kJitCompilerNotFound = 221;
constexpr int kUnsupportedPtx = 222;
constexpr int kOperatingSystem = 304;
constexpr int kSystemNotReady = 802;
constexpr int kDriverMismatch = 803;
constexpr int kCompatNotSupported = 804;
constexpr int kMpsConnection = 805;
constexpr int kMpsLast = 810;
constexpr int kUnknown = 999;
}  // namespace cuda_code

struct CudaDevice {
  int ordinal = 0;
  std::string name;
  std::string uuid;
  std::string bdf;
  std::string compute_capability;
  std::uint64_t memory_total_bytes = 0;
  int multiprocessors = 0;
  bool integrated = false;
  bool watchdog = false;      ///< long kernels are ended: a display hangs on this GPU
  Reading<int> context;       ///< code of creating a context
  Reading<int> launch;        ///< code of running one real kernel and checking its result
  Reading<double> launch_ms;  ///< from cuInit to the checked result of the first kernel
  std::vector<int> peers;     ///< ordinals it can access directly

  static void fields(auto& self, auto&& visit) {
    visit("ordinal", self.ordinal);
    visit("name", self.name);
    visit("uuid", self.uuid);
    visit("bdf", self.bdf);
    visit("compute_capability", self.compute_capability);
    visit("memory_total_bytes", self.memory_total_bytes);
    visit("multiprocessors", self.multiprocessors);
    visit("integrated", self.integrated);
    visit("watchdog", self.watchdog);
    visit("context", self.context);
    visit("launch", self.launch);
    visit("launch_ms", self.launch_ms);
    visit("peers", self.peers);
  }
};

/// What libcuda answered in a child process of its own.
struct CudaAnswers {
  Reading<std::string> library;  ///< the libcuda that the loader took, links resolved
  Reading<int> init;             ///< code of cuInit
  Reading<int> driver_version;   ///< newest CUDA it offers, 1000 × major + 10 × minor
  std::vector<CudaDevice> devices;

  static void fields(auto& self, auto&& visit) {
    visit("library", self.library);
    visit("init", self.init);
    visit("driver_version", self.driver_version);
    visit("devices", self.devices);
  }
};

/// A shared library found in a folder that the loader searches.
struct FoundLibrary {
  std::string path;
  std::string target;   ///< the file behind the link
  std::string version;  ///< from the file's name; empty when it carries none
  std::string origin;   ///< LD_LIBRARY_PATH, ld.so.conf, default, wsl

  static void fields(auto& self, auto&& visit) {
    visit("path", self.path);
    visit("target", self.target);
    visit("version", self.version);
    visit("origin", self.origin);
  }
};

struct Toolkit {
  std::string path;
  std::string version;
  bool on_path = false;  ///< its nvcc is the first on PATH, or CUDA_HOME names it

  static void fields(auto& self, auto&& visit) {
    visit("path", self.path);
    visit("version", self.version);
    visit("on_path", self.on_path);
  }
};

/// Layer 3: libcuda, what stands on the search path, and what it answered.
struct Cuda {
  CudaAnswers answers;
  std::vector<FoundLibrary> libcuda;    ///< every libcuda.so.1 in search order
  bool libcuda_link = false;            ///< an unversioned libcuda.so, which Triton's linker wants
  std::vector<FoundLibrary> libraries;  ///< cuDNN, NCCL, nvJitLink, cudart, cuBLAS on the search path, in search order
  std::vector<Toolkit> toolkits;
  bool compiler = false;  ///< a C compiler on PATH, which Triton wants
  bool mps_control_pipe = false;
  bool mps_daemon = false;
  Reading<bool> jit_cache_writable;

  bool works() const { return answers.init.is(0) && !answers.devices.empty(); }
  static void fields(auto& self, auto&& visit) {
    visit("answers", self.answers);
    visit("libcuda", self.libcuda);
    visit("libcuda_link", self.libcuda_link);
    visit("libraries", self.libraries);
    visit("toolkits", self.toolkits);
    visit("compiler", self.compiler);
    visit("mps_control_pipe", self.mps_control_pipe);
    visit("mps_daemon", self.mps_daemon);
    visit("jit_cache_writable", self.jit_cache_writable);
  }
};

}  // namespace fullwatt::model
