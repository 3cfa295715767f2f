#include "fullwatt/doctor/probe/child.hpp"

#include <cstdio>

#include "fullwatt/model/json.hpp"
#include "fullwatt/vendor/cuda/cuda.hpp"
#include "fullwatt/vendor/nvml/nvml.hpp"

namespace fullwatt::doctor {

int run_probe_child(const std::string& which) {
  model::Json answers;
  if (which == "nvml") {
    answers = model::to_json(vendor::nvml::read());
  } else if (which == "cuda") {
    answers = model::to_json(vendor::cuda::read());
  } else {
    return 2;
  }
  const auto text = model::dump(answers);
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() ? 0 : 1;
}

}  // namespace fullwatt::doctor
