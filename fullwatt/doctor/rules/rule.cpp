#include "fullwatt/doctor/rules/rule.hpp"

namespace fullwatt::doctor {

Match& Match::about(const model::Machine& machine, const std::string& bdf) {
  fact("gpu", machine.gpu_label(bdf));
  fact("bdf", bdf);
  if (const auto* gpu = machine.gpu_by_bdf(bdf)) {
    if (gpu->nvml_index) fact("index", std::to_string(*gpu->nvml_index));
    if (!gpu->uuid.empty()) fact("uuid", gpu->uuid);
  }
  return *this;
}

std::vector<Rule> all_rules() {
  std::vector<Rule> rules;
  for (const auto layer : {hardware_rules(), driver_rules(), container_rules(), cuda_rules(), pytorch_rules(),
                           application_rules(), symptom_rules()}) {
    rules.insert(rules.end(), layer.begin(), layer.end());
  }
  return rules;
}

}  // namespace fullwatt::doctor
