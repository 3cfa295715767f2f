#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fullwatt/model/finding.hpp"
#include "fullwatt/model/machine.hpp"

namespace fullwatt::doctor {

/// What a rule saw: the evidence, and the facts that fill the placeholders of its words.
struct Match {
  std::vector<model::Evidence> evidence;
  std::map<std::string, std::string> facts;
  std::optional<model::Severity> severity;  ///< where this case is milder or graver than the catalogue says

  /// Adds what was looked at, what it was, and where it was read.
  Match& saw(std::string what, std::string value, std::string where = {}) {
    evidence.push_back({std::move(what), std::move(value), std::move(where)});
    return *this;
  }
  /// Sets a fact; the first value stays.
  Match& fact(const std::string& name, std::string value) {
    facts.emplace(name, std::move(value));
    return *this;
  }
  /// Names the GPU it is about: facts gpu, bdf, index and uuid. Where NVML gives no index it is the PCI address, which
  /// nvidia-smi takes as well.
  Match& about(const model::Machine& machine, const std::string& bdf);
};

/// Facts that a rule cannot do without. Where they are absent the check is skipped, with the reason.
enum Requires : unsigned {
  kNothing = 0,
  kPci = 1,         ///< the PCI bus could be listed
  kNvml = 2,        ///< NVML works
  kCuda = 4,        ///< cuInit gave an answer, whatever it was
  kTorch = 8,       ///< torch was imported
  kKernelLog = 16,  ///< the kernel log could be read
  kProcess = 32,    ///< a process was asked about
  kTrainingLog = 64,
};

/// One check: its id in the catalogue (words, severity, log patterns stand there), what it needs, and the predicate.
/// The predicate returns what it saw when the fault is there, nothing otherwise.
struct Rule {
  std::string_view id;
  unsigned requires_;
  std::optional<Match> (*check)(const model::Machine&);
};

/// The rules of each layer, in the order of the catalogue.
std::span<const Rule> hardware_rules();
std::span<const Rule> hardware_power_rules();
std::span<const Rule> hardware_fault_rules();
std::span<const Rule> driver_rules();
std::span<const Rule> driver_support_rules();
std::span<const Rule> driver_access_rules();
std::span<const Rule> container_rules();
std::span<const Rule> wsl_rules();
std::span<const Rule> cuda_library_rules();
std::span<const Rule> cuda_visibility_rules();
std::span<const Rule> cuda_setting_rules();
std::span<const Rule> cuda_memory_rules();
std::span<const Rule> pytorch_rules();
std::span<const Rule> pytorch_library_rules();
std::span<const Rule> pytorch_setting_rules();
std::span<const Rule> application_rules();
std::span<const Rule> application_host_rules();
std::span<const Rule> application_peer_rules();
std::span<const Rule> symptom_rules();

/// Every rule of every layer.
std::vector<Rule> all_rules();

}  // namespace fullwatt::doctor
