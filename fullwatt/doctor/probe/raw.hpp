#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fullwatt/base/error.hpp"
#include "fullwatt/base/files.hpp"
#include "fullwatt/doctor/probe/world.hpp"
#include "fullwatt/model/machine.hpp"

namespace fullwatt::doctor {

/// What a diagnosis of a recorded machine must say; only in patients.
struct Expectation {
  std::string root_cause;
  std::vector<std::string> findings;  ///< every warning and error, in any order
  std::vector<std::string> notes;     ///< notes and infos that must be among the rest

  static void fields(auto& self, auto&& visit) {
    visit("root_cause", self.root_cause);
    visit("findings", self.findings);
    visit("notes", self.notes);
  }
};

/// A machine before any interpretation: its files, what system calls and vendor libraries answered, its environment.
/// This is the form that is saved, sent and replayed.
struct RawMachine {
  static constexpr int kSchemaVersion = 1;

  std::string about;
  Expectation expect;
  base::Tree files;
  model::System system;
  base::Environment environment;
  model::Nvml nvml;
  model::CudaAnswers cuda;
  model::TorchAnswers torch;
  Target target;
};

/// Reads DIR/machine.yaml, laid over the base it names (a folder beside DIR). Everything in it is untrusted.
base::Result<RawMachine> load_raw(const std::string& folder);
/// The same from text, for a machine without a base.
base::Result<RawMachine> parse_raw(const std::string& yaml);
std::string raw_to_yaml(const RawMachine& raw);
/// Writes DIR/machine.yaml; DIR is made, an existing machine is not overwritten.
base::Result<void> save_raw(const RawMachine& raw, const std::string& folder);

std::shared_ptr<World> replay(const RawMachine& raw);

/// Passes everything through and remembers it.
class RecordingWorld final : public World {
 public:
  explicit RecordingWorld(std::shared_ptr<World> source);

  base::Files& files() override { return files_; }
  const base::Environment& environment() override { return source_->environment(); }
  model::System system() override;
  model::Nvml nvml(const base::Environment& environment, std::chrono::milliseconds limit) override;
  model::CudaAnswers cuda(const base::Environment& environment, std::chrono::milliseconds limit) override;
  model::TorchAnswers torch(const std::string& interpreter, const base::Environment& environment, bool touch_gpu,
                            std::chrono::milliseconds limit) override;

  RawMachine recorded(const Target& target) const;

 private:
  std::shared_ptr<World> source_;
  base::RecordingFiles files_;
  mutable std::mutex mutex_;
  RawMachine raw_;
};

}  // namespace fullwatt::doctor
