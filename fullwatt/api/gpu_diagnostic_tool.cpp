#include "fullwatt/api/gpu_diagnostic_tool.hpp"

#include <cstdlib>
#include <stdexcept>

#include "fullwatt/api/install_path.hpp"
#include "fullwatt/base/process.hpp"
#include "fullwatt/base/version.hpp"
#include "fullwatt/doctor/diagnose.hpp"
#include "fullwatt/doctor/probe/examine.hpp"
#include "fullwatt/doctor/probe/raw.hpp"
#include "fullwatt/doctor/select.hpp"
#include "fullwatt/show/doctor.hpp"
#include "fullwatt/show/words.hpp"

namespace fullwatt::api {
namespace {

using model::Layer;

std::string find_executable(const DiagnosticOptions& options) {
  if (!options.executable.empty()) return options.executable;
  if (const char* named = std::getenv("FULLWATT_EXECUTABLE"); named != nullptr && *named != '\0') return named;
  const auto environment = base::current_environment();
  if (auto installed = base::find_in_path(std::string(kInstalledExecutable), environment); !installed.empty())
    return installed;
  return base::find_in_path("fullwatt", environment);
}

Problem to_problem(const model::Finding& finding, catalog::Language language) {
  const auto words = show::render(finding, language);
  Problem problem{finding.id, finding.severity, words.title, words.cause, {}, {}};
  for (const auto& step : words.remedy) {
    problem.remedy.push_back(step.text);
    if (!step.run.empty()) problem.commands.push_back(step.run);
  }
  return problem;
}

}  // namespace

struct GpuDiagnosticTool::State {
  DiagnosticOptions options;
  catalog::Language language = catalog::Language::en;
  std::optional<show::DoctorReport> report;
  model::Selection selection;

  const show::DoctorReport& examined() {
    if (!report) examine();
    return *report;
  }

  void examine() {
    show::DoctorReport fresh;
    fresh.machine = options.saved_machine.empty() ? this_machine() : saved_machine();
    fresh.diagnosis = doctor::diagnose(fresh.machine);
    selection = doctor::select_gpu(fresh.machine);
    report = std::move(fresh);
  }

  model::Machine this_machine() const {
    doctor::Target target;
    target.python = options.python;
    target.wake = options.wake_gpu;
    target.torch = options.import_torch;
    return doctor::examine(doctor::this_machine(find_executable(options)), target);
  }

  model::Machine saved_machine() const {
    auto raw = doctor::load_raw(options.saved_machine);
    if (!raw) throw std::runtime_error(raw.error().message + "\n" + raw.error().remedy);
    raw->target.wake = raw->target.wake || options.wake_gpu;
    return doctor::examine(doctor::replay(*raw), raw->target);
  }

  std::vector<Problem> problems(Layer layer) {
    std::vector<Problem> found;
    for (const auto& finding : examined().diagnosis.findings) {
      if (finding.layer == layer && finding.severity >= model::Severity::warning)
        found.push_back(to_problem(finding, language));
    }
    return found;
  }

  const model::LayerStatus& status(Layer layer) {
    return examined().diagnosis.layers.at(static_cast<std::size_t>(layer));
  }
  bool works(Layer layer) {
    const auto state = status(layer).state;
    return state == model::LayerStatus::State::works || state == model::LayerStatus::State::degraded;
  }
};

GpuDiagnosticTool::GpuDiagnosticTool(DiagnosticOptions options) : state_(std::make_unique<State>()) {
  state_->language = options.language.starts_with("zh") ? catalog::Language::zh : catalog::Language::en;
  state_->options = std::move(options);
}
GpuDiagnosticTool::~GpuDiagnosticTool() = default;
GpuDiagnosticTool::GpuDiagnosticTool(GpuDiagnosticTool&&) noexcept = default;
GpuDiagnosticTool& GpuDiagnosticTool::operator=(GpuDiagnosticTool&&) noexcept = default;

HardwareStatus GpuDiagnosticTool::check_hardware_detection() {
  HardwareStatus hardware;
  const auto& machine = state_->examined().machine;
  hardware.gpu_detected = !machine.gpus.empty();
  hardware.gpus = state_->selection.gpus;
  hardware.summary = state_->status(Layer::hardware).summary;
  hardware.problems = state_->problems(Layer::hardware);
  return hardware;
}

DriverStatus GpuDiagnosticTool::check_nvidia_driver() {
  DriverStatus driver;
  const auto& machine = state_->examined().machine;
  driver.version = machine.driver.version.value_or(machine.nvml.driver_version.value_or(""));
  driver.flavour = machine.driver.flavour;
  driver.installed = machine.driver.loaded || !machine.driver.module_files.empty() || machine.nvml.works();
  driver.working = state_->works(Layer::driver);
  driver.summary = state_->status(Layer::driver).summary;
  driver.problems = state_->problems(Layer::driver);
  return driver;
}

CudaStatus GpuDiagnosticTool::check_cuda_installation() {
  CudaStatus cuda;
  const auto& facts = state_->examined().machine.cuda;
  cuda.working = state_->works(Layer::cuda);
  if (facts.answers.driver_version) cuda.version = base::cuda_version_text(*facts.answers.driver_version);
  cuda.library = facts.answers.library.value_or("");
  for (const auto& toolkit : facts.toolkits) cuda.toolkits.push_back(toolkit.version);
  cuda.summary = state_->status(Layer::cuda).summary;
  cuda.problems = state_->problems(Layer::cuda);
  return cuda;
}

PyTorchStatus GpuDiagnosticTool::check_pytorch_gpu_support() {
  PyTorchStatus pytorch;
  const auto& facts = state_->examined().machine.torch;
  pytorch.installed = facts.answers.version.has_value() || facts.active() != nullptr;
  pytorch.gpu_usable = state_->works(Layer::pytorch) && facts.answers.available.is(true);
  pytorch.version = facts.answers.version.value_or("");
  pytorch.cuda_version = facts.answers.cuda;
  pytorch.interpreter = facts.interpreter;
  pytorch.summary = state_->status(Layer::pytorch).summary;
  pytorch.problems = state_->problems(Layer::pytorch);
  return pytorch;
}

DeviceSelectionResult GpuDiagnosticTool::diagnose_device_selection() {
  DeviceSelectionResult result;
  result.problems = state_->problems(Layer::application);
  result.candidates = state_->selection.gpus;
  result.reason = state_->selection.reason;
  result.environment = doctor::export_lines(state_->selection);
  if (const auto* gpu = state_->selection.selected()) result.selected = *gpu;
  return result;
}

GpuDiagnosticReport GpuDiagnosticTool::generate_gpu_diagnostic_report() {
  GpuDiagnosticReport report;
  report.hardware = check_hardware_detection();
  report.driver = check_nvidia_driver();
  report.cuda = check_cuda_installation();
  report.pytorch = check_pytorch_gpu_support();
  report.device_selection = diagnose_device_selection();
  const auto& examined = state_->examined();
  if (const auto* root = examined.diagnosis.find(examined.diagnosis.root_cause))
    report.root_cause = to_problem(*root, state_->language);
  report.conclusion = show::closing_sentence(examined, state_->language);
  report.text = show::doctor_text(
      examined, show::Style{.color = false, .unicode = true, .width = 100, .language = state_->language}, false);
  report.json = model::dump(show::doctor_json(examined, state_->language), 2);
  return report;
}

void GpuDiagnosticTool::refresh() {
  state_->report.reset();
}

}  // namespace fullwatt::api
