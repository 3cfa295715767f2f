#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "fullwatt/model/finding.hpp"

/// Words and facts as data, compiled into the binary from the YAML files of this folder.
namespace fullwatt::catalog {

enum class Language { en, zh };

/// One text in every language the catalogue speaks.
struct Words {
  std::string_view en;
  std::string_view zh;

  std::string_view in(Language language) const { return language == Language::zh ? zh : en; }
};

/// A step of a remedy; `run` is a command to copy, empty where there is none.
struct Step {
  Words text;
  std::string_view run;
};

/// Which input can show a finding.
enum Needs : unsigned { kMachine = 1, kProcess = 2, kLog = 4, kLoad = 8, kRun = 16 };

/// What mending it gives, as the share of the affected time that is left: from the best case to the one to promise.
struct Gain {
  double best = 1;
  double cautious = 1;
  std::string_view source;
};

struct Entry {
  std::string_view id;
  model::Layer layer;
  model::Severity severity;
  model::Confidence confidence;
  unsigned needs;
  bool symptom;  ///< says that a layer does not work, not why: explained by whatever cause stands below it
  Words title;
  Words cause;
  std::span<const Step> remedy;
  std::span<const std::string_view> kernel_log;  ///< patterns, see base/pattern.hpp
  std::span<const std::string_view> training_log;
  std::span<const std::string_view> explained_by;  ///< ids that, when present, are the reason for this one
  std::span<const std::string_view> see;
  std::span<const std::string_view> sources;
  Gain gain;
};

/// All entries, by layer and then in the order of their files.
std::span<const Entry> entries();
const Entry* find(std::string_view id);
/// The id nearest to a mistyped one; empty when none is near.
std::string_view nearest(std::string_view id);

/// A word of the reports themselves, such as "root_cause"; the key itself when the catalogue lacks it.
std::string_view label(std::string_view key, Language language);

/// A GPU generation by PCI device id, for GPUs that no driver has named yet.
struct Architecture {
  std::string_view name;
  int first_device;
  int last_device;
  std::string_view compute_capability;  ///< lowest of the range
  int first_branch;                     ///< first driver branch that knows it
  int last_branch;                      ///< last one that does; 0 while it is still supported
  std::string_view module;              ///< open, closed or both: flavours of the kernel module that drive it
};
std::span<const Architecture> architectures();
const Architecture* architecture_of(int pci_device);

/// The lowest driver that starts any program of a CUDA major version, and the newest CUDA of a driver branch.
struct CudaFloor {
  int cuda_major;
  std::string_view driver;
};
struct BranchCuda {
  int branch;
  std::string_view cuda;
};
std::span<const CudaFloor> cuda_floors();
std::span<const BranchCuda> branch_cudas();

/// One build of PyTorch on its wheel index.
struct TorchWheel {
  std::string_view torch;  ///< minor version such as 2.11
  std::string_view tag;    ///< such as cu130
  std::string_view archs;  ///< compute capabilities of its kernels, blank-separated; a trailing + marks PTX
};
std::span<const TorchWheel> torch_wheels();
/// The wheel index to install from for this driver and GPU, such as cu130.
std::string_view wheel_for(const std::string& driver_version, const std::string& compute_capability);

/// Names of return codes.
std::string_view nvml_code_name(int code);
std::string_view cuda_code_name(int code);

}  // namespace fullwatt::catalog
