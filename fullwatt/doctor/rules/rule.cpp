#include "fullwatt/doctor/rules/rule.hpp"

namespace fullwatt::doctor {

Match& Match::about(const model::Machine& machine, const std::string& bdf) {
  fact("gpu", machine.gpu_label(bdf));
  fact("bdf", bdf);
  if (const auto* gpu = machine.gpu_by_bdf(bdf)) {
    if (gpu->nvml_index) fact("index", std::to_string(*gpu->nvml_index));
    if (!gpu->uuid.empty()) fact("uuid", gpu->uuid);
  }
  fact("index", bdf);
  return *this;
}

std::vector<Rule> all_rules() {
  std::vector<Rule> rules;
  for (const auto layer :
       {hardware_rules(), hardware_power_rules(), hardware_fault_rules(), driver_rules(), driver_support_rules(),
        driver_access_rules(), container_rules(), wsl_rules(), cuda_library_rules(), cuda_visibility_rules(),
        cuda_setting_rules(), cuda_memory_rules(), pytorch_rules(), pytorch_library_rules(), pytorch_setting_rules(),
        application_rules(), application_host_rules(), application_peer_rules(), symptom_rules()}) {
    rules.insert(rules.end(), layer.begin(), layer.end());
  }
  return rules;
}

}  // namespace fullwatt::doctor
