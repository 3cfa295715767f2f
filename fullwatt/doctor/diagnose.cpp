#include "fullwatt/doctor/diagnose.hpp"

#include <algorithm>
#include <exception>

#include "catalog/catalog.hpp"

#include "fullwatt/base/pattern.hpp"
#include "fullwatt/base/text.hpp"
#include "fullwatt/doctor/layers.hpp"
#include "fullwatt/doctor/rules/rule.hpp"

namespace fullwatt::doctor {
namespace {

using model::CheckResult;
using model::Diagnosis;
using model::Finding;
using model::Machine;
using model::Severity;

template <class T>
std::string why_absent(std::string_view what, const base::Reading<T>& reading) {
  auto text = std::string(what) + ": " + std::string(base::to_string(reading.error().reason));
  if (!reading.error().detail.empty()) text += " (" + base::printable(reading.error().detail, 120) + ")";
  return text;
}

/// Empty when everything the rule needs is known, else what is missing.
std::string missing(unsigned needed, const Machine& machine) {
  if ((needed & kPci) != 0 && !machine.hardware.pci_devices) return why_absent("PCI bus", machine.hardware.pci_devices);
  if ((needed & kNvml) != 0 && !machine.nvml.works()) {
    return machine.nvml.init ? "NVML does not work" : why_absent("NVML", machine.nvml.init);
  }
  if ((needed & kCuda) != 0 && !machine.cuda.answers.init) return why_absent("CUDA", machine.cuda.answers.init);
  if ((needed & kTorch) != 0 && !machine.torch.answers.version)
    return why_absent("PyTorch", machine.torch.answers.version);
  if ((needed & kKernelLog) != 0 && !machine.driver.kernel_log)
    return why_absent("kernel log", machine.driver.kernel_log);
  if ((needed & kProcess) != 0 && !machine.process) return "no process asked about (--pid)";
  if ((needed & kTrainingLog) != 0 && !machine.log) return "no log asked about (--log)";
  return {};
}

/// The first line that one of the patterns fits, as a match.
std::optional<Match> search_log(std::span<const std::string_view> patterns, const std::vector<std::string>& lines,
                                const std::string& where) {
  for (const auto& line : lines) {
    for (const auto pattern : patterns) {
      const auto captures = base::match(pattern, line);
      if (!captures) continue;
      Match match;
      match.saw("message", base::printable(base::trim(line), 300), where);
      for (const auto& [name, value] : *captures) match.fact(name, base::printable(value, 120));
      return match;
    }
  }
  return std::nullopt;
}

/// "0000:01:00" of an Xid line names a device without its function, and on a MIG slice more follows after a blank.
/// Where the line names none, it can only mean the one GPU there is; else the words have to do without a name.
void name_gpu_of_log(const Machine& machine, Match& match) {
  const auto captured = match.facts.find("bdf");
  if (captured == match.facts.end()) {
    if (machine.gpus.size() == 1) match.about(machine, machine.gpus.front().bdf);
    match.fact("gpu", "GPU").fact("index", "N");
    return;
  }
  const auto address = captured->second.substr(0, captured->second.find(' '));
  for (const auto& gpu : machine.gpus) {
    if (gpu.bdf.starts_with(address)) {
      match.facts.erase(captured);
      match.about(machine, gpu.bdf);
      return;
    }
  }
  match.fact("gpu", "GPU " + address).fact("index", address);
}

void merge(std::optional<Match>& into, std::optional<Match> more) {
  if (!more) return;
  if (!into) {
    into = std::move(more);
    return;
  }
  for (auto& seen : more->evidence) {
    if (std::ranges::find(into->evidence, seen) == into->evidence.end()) into->evidence.push_back(std::move(seen));
  }
  into->facts.merge(more->facts);
}

Finding to_finding(const catalog::Entry& entry, Match match) {
  Finding finding;
  finding.id = entry.id;
  finding.layer = entry.layer;
  finding.severity = match.severity.value_or(entry.severity);
  finding.confidence = entry.confidence;
  finding.evidence = std::move(match.evidence);
  finding.facts = std::move(match.facts);
  return finding;
}

class Consultation {
 public:
  Consultation(const Machine& machine, const Choice& choice)
      : machine_(machine), choice_(choice), rules_(all_rules()) {}

  Diagnosis run() {
    for (const auto& entry : catalog::entries()) {
      if (choice_.wants(entry.id, entry.layer)) check(entry);
    }
    explain_findings();
    choose_root_cause();
    link_symptoms();
    order_findings();
    diagnosis_.layers = layer_statuses(machine_, diagnosis_);
    return std::move(diagnosis_);
  }

 private:
  void check(const catalog::Entry& entry) {
    CheckResult result{std::string(entry.id), entry.layer, CheckResult::Status::passed, {}};
    std::optional<Match> match;
    std::string reason = not_now(entry);
    for (const auto& rule : rules_) {
      if (rule.id != entry.id) continue;
      if (const auto lacking = missing(rule.requires_, machine_); !lacking.empty()) {
        reason = lacking;
        continue;
      }
      reason.clear();
      try {
        merge(match, rule.check(machine_));
      } catch (const std::exception& error) {
        result.status = CheckResult::Status::broken;
        reason = error.what();
      }
    }
    merge(match, search_logs(entry, reason));
    if (match) {
      result.status = CheckResult::Status::found;
      reason.clear();
      diagnosis_.findings.push_back(to_finding(entry, *std::move(match)));
    } else if (!reason.empty() && result.status == CheckResult::Status::passed) {
      result.status = CheckResult::Status::skipped;
    }
    result.reason = reason;
    diagnosis_.checks.push_back(std::move(result));
  }

  /// Why an entry without a rule cannot be judged here.
  std::string not_now(const catalog::Entry& entry) const {
    if ((entry.needs & ~(catalog::kLoad | catalog::kRun)) == 0) return "shows only while a training runs: fullwatt run";
    if ((entry.needs & catalog::kMachine) != 0) return {};
    if ((entry.needs & catalog::kProcess) != 0 && !machine_.process) return "no process asked about (--pid)";
    if ((entry.needs & catalog::kLog) != 0 && !machine_.log) return "no log asked about (--log)";
    return {};
  }

  std::optional<Match> search_logs(const catalog::Entry& entry, std::string& reason) const {
    std::optional<Match> match;
    if (!entry.kernel_log.empty() && machine_.driver.kernel_log) {
      merge(match, search_log(entry.kernel_log, *machine_.driver.kernel_log, "kernel log"));
    }
    if (!entry.training_log.empty() && machine_.log) {
      merge(match, search_log(entry.training_log, *machine_.log, "training log"));
      reason.clear();
    }
    if (match) name_gpu_of_log(machine_, *match);
    return match;
  }

  /// A finding whose catalogue entry names another present finding as its reason is a consequence of it.
  void explain_findings() {
    for (auto& finding : diagnosis_.findings) {
      for (const auto cause : catalog::find(finding.id)->explained_by) {
        if (finding.consequence_of.empty() && diagnosis_.find(cause) != nullptr) finding.consequence_of = cause;
      }
    }
  }

  /// How well a finding serves as root cause: a sure cause, else a possible one, else a symptom nobody explains.
  static int standing(const Finding& finding) {
    if (catalog::find(finding.id)->symptom) return 2;
    return finding.confidence == model::Confidence::possible ? 1 : 0;
  }

  /// The lowest layer that does not work, of those that nothing explains yet.
  model::Layer lowest_symptom() const {
    auto lowest = model::kLayers.back();
    for (const auto& finding : diagnosis_.findings) {
      const bool symptom = finding.severity == Severity::error && catalog::find(finding.id)->symptom;
      if (symptom && finding.consequence_of.empty()) lowest = std::min(lowest, finding.layer);
    }
    return lowest;
  }

  /// The lowest layer that is broken names the root cause; findings stand in the order of the layers. What is wrong
  /// in PyTorch or above it is no reason why the driver or CUDA does not work, unless the catalogue says so.
  void choose_root_cause() {
    const Finding* best = nullptr;
    const auto limit = std::max(lowest_symptom(), model::Layer::cuda);
    for (const auto& finding : diagnosis_.findings) {
      if (finding.severity != Severity::error || !finding.consequence_of.empty() || finding.layer > limit) continue;
      if (best == nullptr || standing(finding) < standing(*best)) best = &finding;
    }
    if (best != nullptr) diagnosis_.root_cause = best->id;
  }

  void link_symptoms() {
    for (auto& finding : diagnosis_.findings) {
      if (catalog::find(finding.id)->symptom && finding.consequence_of.empty() && finding.id != diagnosis_.root_cause) {
        finding.consequence_of = diagnosis_.root_cause;
      }
    }
  }

  /// Root cause first, then the rest by severity and the catalogue's order (lowest layer first), consequences last.
  void order_findings() {
    const auto rank = [&](const Finding& f) {
      return std::tuple(f.id != diagnosis_.root_cause, !f.consequence_of.empty(), -static_cast<int>(f.severity),
                        catalog::find(f.id) - catalog::entries().data());
    };
    std::ranges::sort(diagnosis_.findings, {}, rank);
  }

  const Machine& machine_;
  const Choice& choice_;
  std::vector<Rule> rules_;
  Diagnosis diagnosis_;
};

}  // namespace

bool Choice::wants(std::string_view id, model::Layer layer) const {
  const auto names = [&](const std::string& word) { return word == model::to_string(layer) || id.starts_with(word); };
  if (!only.empty() && std::ranges::none_of(only, names)) return false;
  return std::ranges::none_of(skip, names);
}

model::Diagnosis diagnose(const model::Machine& machine, const Choice& choice) {
  return Consultation(machine, choice).run();
}

}  // namespace fullwatt::doctor
