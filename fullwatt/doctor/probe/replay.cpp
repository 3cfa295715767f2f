#include <utility>

#include "fullwatt/doctor/probe/probes.hpp"
#include "fullwatt/doctor/probe/raw.hpp"

namespace fullwatt::doctor {
namespace {

class ReplayedWorld final : public World {
 public:
  explicit ReplayedWorld(RawMachine raw)
      : raw_(std::move(raw)), files_(raw_.files, raw_.system.uid, raw_.system.groups) {}

  base::Files& files() override { return files_; }
  const base::Environment& environment() override { return raw_.environment; }
  model::System system() override { return raw_.system; }
  model::Nvml nvml(const base::Environment&, std::chrono::milliseconds) override { return raw_.nvml; }
  model::CudaAnswers cuda(const base::Environment&, std::chrono::milliseconds) override { return raw_.cuda; }
  model::TorchAnswers torch(const std::string&, const base::Environment&, bool touch_gpu,
                            std::chrono::milliseconds) override {
    auto answers = raw_.torch;
    if (!touch_gpu) {
      answers.available = base::absent(base::Absent::asleep);
      answers.device_count = base::absent(base::Absent::asleep);
      answers.devices.clear();
    }
    return answers;
  }

 private:
  RawMachine raw_;
  base::TreeFiles files_;
};

/// A process's environment holds tokens and passwords: only what a diagnosis looks at is kept.
void forget_secrets(base::Tree& files) {
  for (auto& [path, entry] : files) {
    if (!path.starts_with("/proc/") || !path.ends_with("/environ") || !entry.text) continue;
    std::string kept;
    for (const auto& [name, value] : relevant(base::parse_environment(*entry.text))) kept += name + "=" + value + '\0';
    entry.text = kept;
  }
}

}  // namespace

std::shared_ptr<World> replay(const RawMachine& raw) {
  return std::make_shared<ReplayedWorld>(raw);
}

RecordingWorld::RecordingWorld(std::shared_ptr<World> source) : source_(std::move(source)), files_(source_->files()) {
  raw_.environment = source_->environment();
}

model::System RecordingWorld::system() {
  auto answer = source_->system();
  const std::scoped_lock lock(mutex_);
  raw_.system = answer;
  return answer;
}

model::Nvml RecordingWorld::nvml(const base::Environment& environment, std::chrono::milliseconds limit) {
  auto answer = source_->nvml(environment, limit);
  const std::scoped_lock lock(mutex_);
  raw_.nvml = answer;
  return answer;
}

model::CudaAnswers RecordingWorld::cuda(const base::Environment& environment, std::chrono::milliseconds limit) {
  auto answer = source_->cuda(environment, limit);
  const std::scoped_lock lock(mutex_);
  raw_.cuda = answer;
  return answer;
}

model::TorchAnswers RecordingWorld::torch(const std::string& interpreter, const base::Environment& environment,
                                          bool touch_gpu, std::chrono::milliseconds limit) {
  auto answer = source_->torch(interpreter, environment, touch_gpu, limit);
  const std::scoped_lock lock(mutex_);
  raw_.torch = answer;
  return answer;
}

RawMachine RecordingWorld::recorded(const Target& target) const {
  const std::scoped_lock lock(mutex_);
  auto raw = raw_;
  raw.files = files_.recorded();
  forget_secrets(raw.files);
  raw.target = target;
  return raw;
}

}  // namespace fullwatt::doctor
