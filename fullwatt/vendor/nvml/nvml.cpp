#include "fullwatt/vendor/nvml/nvml.hpp"

#include "fullwatt/base/library.hpp"
#include "fullwatt/vendor/nvml/device.hpp"
#include "fullwatt/vendor/nvml/functions.hpp"

namespace fullwatt::vendor::nvml {
namespace {

/// Any code that nvmlInit answers is a value; absent only when there is no such function.
Reading<int> initialize(const Functions& nvml) {
  const auto outcome = nvml.call({"nvmlInit_v2", "nvmlInit"});
  if (outcome) return model::nvml_code::kSuccess;
  if (outcome.error().code != 0) return outcome.error().code;
  return outcome.error();
}

void read_everything(const Functions& nvml, model::Nvml& answer) {
  answer.driver_version = nvml.ask_text({"nvmlSystemGetDriverVersion"});
  // Not the first version of this function: that one answers its own build's version where libcuda is missing.
  answer.cuda_version = nvml.ask<int>({"nvmlSystemGetCudaDriverVersion_v2"});
  const unsigned count = nvml.ask<unsigned>({"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"}).value_or(0);
  for (unsigned index = 0; index < count; ++index) answer.devices.push_back(read_device(nvml, index));
}

}  // namespace

model::Nvml read(const std::string& library_name) {
  model::Nvml answer;
  const auto library = base::Library::load(library_name);
  if (!library) {
    answer.library = base::absent(base::Absent::not_there, library.error().message);
    answer.init = answer.library.error();
    return answer;
  }
  const std::string path = library->path_of("nvmlShutdown");
  answer.library = path.empty() ? library_name : path;
  const Functions nvml(*library);
  answer.init = initialize(nvml);
  if (!answer.works()) return answer;
  read_everything(nvml, answer);
  [[maybe_unused]] const auto closed = nvml.call({"nvmlShutdown"});
  return answer;
}

}  // namespace fullwatt::vendor::nvml
