// A GPU that the training could not use: what `doctor` finds broken in the layers below it.

#include <algorithm>

#include "fullwatt/doctor/diagnose.hpp"
#include "fullwatt/explain/rules/rule.hpp"

namespace fullwatt::explain {

double on_cpu_ms(const Case& examined) {
  double computing = 0;
  for (const auto cause : {cause::kForward, cause::kBackward, cause::kOptimizer}) computing += examined.charged(cause);
  return computing;
}

std::vector<model::Finding> machine_findings(const Case& examined) {
  const auto& machine = examined.evidence.run.machine;
  const bool on_gpu = examined.on_gpu() || examined.facts().on_gpu();
  if (!machine || on_gpu || machine->hardware.nvidia().empty()) return {};
  auto diagnosis = doctor::diagnose(*machine);
  std::erase_if(diagnosis.findings, [](const model::Finding& finding) {
    return finding.severity < model::Severity::error || !finding.consequence_of.empty();
  });
  for (auto& finding : diagnosis.findings) {
    if (finding.id != diagnosis.root_cause) continue;
    finding.charged_ms = on_cpu_ms(examined);
    finding.gain_ms = *finding.charged_ms * (1 - keeps("model-on-cpu"));
  }
  return std::move(diagnosis.findings);
}

}  // namespace fullwatt::explain
