#include <csignal>
#include <cstring>

#include <fmt/format.h>

#include "fullwatt/base/process.hpp"
#include "fullwatt/base/text.hpp"
#include "fullwatt/doctor/probe/probes.hpp"
#include "fullwatt/doctor/probe/system.hpp"
#include "fullwatt/doctor/probe/torch_script.hpp"
#include "fullwatt/doctor/probe/world.hpp"
#include "fullwatt/model/json.hpp"

namespace fullwatt::doctor {
namespace {

using base::Absent;
using base::absent;

/// How a child failed, as the absence its answers leave.
base::Absence child_failure(const base::Result<base::ChildResult>& result, std::string_view what) {
  if (!result) return absent(Absent::failed, result.error().message);
  if (result->timed_out)
    return absent(Absent::timed_out, fmt::format("{} gave no answer within {:.0f} s", what, result->seconds));
  if (result->signal != 0) {
    return absent(Absent::failed,
                  fmt::format("{} crashed with signal {} ({})", what, result->signal, strsignal(result->signal)));
  }
  const auto errors = base::lines(base::trim(result->err));
  return absent(Absent::failed, fmt::format("{} ended with code {}: {}", what, result->exit_code,
                                            errors.empty() ? "" : base::printable(errors.back(), 200)));
}

/// The JSON after the marker line, so that whatever else the interpreter prints does not disturb.
std::string_view after_marker(std::string_view output) {
  constexpr std::string_view kMarker = "fullwatt-torch-answers:";
  const auto at = output.rfind(kMarker);
  return at == std::string_view::npos ? std::string_view{} : base::trim(output.substr(at + kMarker.size()));
}

template <class T>
base::Result<T> parse_answers(std::string_view text) {
  const auto json = model::Json::parse(text, nullptr, false);
  if (json.is_discarded()) return base::fail(base::Error::Kind::unavailable, "the answer is not JSON");
  return model::from_json<T>(json);
}

class ThisMachine final : public World {
 public:
  explicit ThisMachine(std::string executable)
      : executable_(std::move(executable)), environment_(base::current_environment()) {}

  base::Files& files() override { return files_; }
  const base::Environment& environment() override { return environment_; }
  model::System system() override { return read_system(); }

  model::Nvml nvml(const base::Environment& environment, std::chrono::milliseconds limit) override {
    const auto result = ask({executable_, "__probe", "nvml"}, environment, limit);
    if (result && result->ok()) {
      if (auto answers = parse_answers<model::Nvml>(result->out)) return *std::move(answers);
    }
    model::Nvml failed;
    failed.init = child_failure(result, "NVML");
    return failed;
  }

  model::CudaAnswers cuda(const base::Environment& environment, std::chrono::milliseconds limit) override {
    auto quiet = environment;
    quiet["CUDA_CACHE_DISABLE"] = "1";  // looking must not write into the user's kernel cache
    const auto result = ask({executable_, "__probe", "cuda"}, quiet, limit);
    if (result && result->ok()) {
      if (auto answers = parse_answers<model::CudaAnswers>(result->out)) return *std::move(answers);
    }
    model::CudaAnswers failed;
    failed.init = child_failure(result, "libcuda");
    return failed;
  }

  model::TorchAnswers torch(const std::string& interpreter, const base::Environment& environment, bool touch_gpu,
                            std::chrono::milliseconds limit) override {
    auto with_flag = environment;
    if (!touch_gpu) with_flag["FULLWATT_TORCH_NO_GPU"] = "1";
    with_flag["PYTHONDONTWRITEBYTECODE"] = "1";
    const auto result = ask({interpreter, "-c", std::string(kTorchScript)}, with_flag, limit);
    if (result && result->ok()) {
      if (auto answers = parse_answers<model::TorchAnswers>(after_marker(result->out))) return *std::move(answers);
    }
    model::TorchAnswers failed;
    failed.executable = child_failure(result, "the Python interpreter");
    failed.version = failed.executable.error();
    return failed;
  }

 private:
  static base::Result<base::ChildResult> ask(std::vector<std::string> argv, const base::Environment& environment,
                                             std::chrono::milliseconds limit) {
    base::ChildOptions options;
    options.argv = std::move(argv);
    options.environment = environment;
    options.limit = limit;
    return base::run_child(options);
  }

  std::string executable_;
  base::Environment environment_;
  base::RealFiles files_;
};

}  // namespace

std::shared_ptr<World> this_machine(std::string executable) {
  return std::make_shared<ThisMachine>(std::move(executable));
}

}  // namespace fullwatt::doctor
