#pragma once

#include <string>
#include <vector>

#include "fullwatt/base/reading.hpp"

namespace fullwatt::model {

using base::Reading;

/// A PyTorch lying on disk, read without running it.
struct TorchInstall {
  std::string site;                      ///< the folder that holds torch/, or a LibTorch folder
  std::string interpreter;               ///< the Python it belongs to; empty for LibTorch without Python
  std::string version;                   ///< such as 2.11.0+cu130
  std::string cuda;                      ///< CUDA version it was built for; empty for a CPU build
  bool cuda_library = false;             ///< libtorch_cuda.so is there
  std::string conda_build;               ///< build string of conda's package, such as cpu_mkl_py311
  std::string torchvision;               ///< version of the torchvision beside it
  std::vector<std::string> onnxruntime;  ///< names of the onnxruntime packages beside it
  std::string onnxruntime_gpu;           ///< version of onnxruntime-gpu beside it
  std::string llama_cpp;                 ///< back end of the llama-cpp-python beside it: cuda, other, cpu
  std::vector<std::string> bundled;      ///< cuDNN, NCCL, nvJitLink, cuBLAS, cudart that came with it

  static void fields(auto& self, auto&& visit) {
    visit("site", self.site);
    visit("interpreter", self.interpreter);
    visit("version", self.version);
    visit("cuda", self.cuda);
    visit("cuda_library", self.cuda_library);
    visit("conda_build", self.conda_build);
    visit("torchvision", self.torchvision);
    visit("onnxruntime", self.onnxruntime);
    visit("onnxruntime_gpu", self.onnxruntime_gpu);
    visit("llama_cpp", self.llama_cpp);
    visit("bundled", self.bundled);
  }
};

/// A Jupyter kernel and the interpreter it starts.
struct JupyterKernel {
  std::string path;
  std::string interpreter;

  static void fields(auto& self, auto&& visit) {
    visit("path", self.path);
    visit("interpreter", self.interpreter);
  }
};

struct TorchDevice {
  std::string name;
  std::string uuid;
  std::string compute_capability;
  Reading<std::string> operation;  ///< "ok" after one checked matrix product, else the error's text

  static void fields(auto& self, auto&& visit) {
    visit("name", self.name);
    visit("uuid", self.uuid);
    visit("compute_capability", self.compute_capability);
    visit("operation", self.operation);
  }
};

/// What the interpreter the user would run answered when it imported torch, in a child process.
struct TorchAnswers {
  Reading<std::string> executable;  ///< sys.executable
  std::string python;               ///< Python's version
  Reading<std::string> version;     ///< torch.__version__; absent with the import error
  std::string file;                 ///< torch.__file__
  std::string cuda;                 ///< torch.version.cuda; empty for None
  std::string hip;
  std::string xpu;
  std::vector<std::string> archs;     ///< torch.cuda.get_arch_list()
  Reading<bool> available;            ///< torch.cuda.is_available()
  std::vector<std::string> warnings;  ///< what torch said while being asked, untrusted
  Reading<int> device_count;
  std::vector<TorchDevice> devices;
  Reading<int> cudnn;                  ///< version number; absent with the error's text
  std::vector<std::string> libraries;  ///< cuDNN, NCCL, nvJitLink, cuBLAS, libcuda as really loaded
  std::string matmul_precision;        ///< highest, high, medium
  Reading<bool> deterministic;
  Reading<bool> cudnn_benchmark;
  Reading<int> threads;
  std::string cpus_before_import;  ///< allowed processors, "0-15"
  std::string cpus_after_import;
  std::vector<std::string> other_torch;  ///< further torch folders on sys.path

  static void fields(auto& self, auto&& visit) {
    visit("executable", self.executable);
    visit("python", self.python);
    visit("version", self.version);
    visit("file", self.file);
    visit("cuda", self.cuda);
    visit("hip", self.hip);
    visit("xpu", self.xpu);
    visit("archs", self.archs);
    visit("available", self.available);
    visit("warnings", self.warnings);
    visit("device_count", self.device_count);
    visit("devices", self.devices);
    visit("cudnn", self.cudnn);
    visit("libraries", self.libraries);
    visit("matmul_precision", self.matmul_precision);
    visit("deterministic", self.deterministic);
    visit("cudnn_benchmark", self.cudnn_benchmark);
    visit("threads", self.threads);
    visit("cpus_before_import", self.cpus_before_import);
    visit("cpus_after_import", self.cpus_after_import);
    visit("other_torch", self.other_torch);
  }
};

/// Layer 4: PyTorch as found on disk and as it answers.
struct Torch {
  std::string interpreter;         ///< the one the user would run; empty when there is none
  std::string interpreter_origin;  ///< --python, active environment, PATH, process
  std::vector<TorchInstall> installs;
  std::vector<JupyterKernel> kernels;
  TorchAnswers answers;
  std::string shell_interpreter;  ///< what `python` starts in the shell, where a process was asked about

  /// The install that the chosen interpreter imports, null when unknown.
  const TorchInstall* active() const;
  static void fields(auto& self, auto&& visit) {
    visit("interpreter", self.interpreter);
    visit("interpreter_origin", self.interpreter_origin);
    visit("installs", self.installs);
    visit("kernels", self.kernels);
    visit("answers", self.answers);
    visit("shell_interpreter", self.shell_interpreter);
  }
};

}  // namespace fullwatt::model
