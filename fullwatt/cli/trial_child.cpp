#include <chrono>

#include "fullwatt/base/text.hpp"
#include "fullwatt/cli/command.hpp"
#include "fullwatt/tune/sandbox.hpp"
#include "fullwatt/tune/supervise.hpp"

namespace fullwatt::cli {

int run_trial_child(const std::vector<std::string>& arguments) {
  const auto limit = arguments.size() > 3 ? base::number<int>(arguments[2]) : std::nullopt;
  if (!limit || *limit <= 0) {
    return report({base::Error::Kind::bad_input, "usage: fullwatt __trial SCRATCH WRITABLE MILLISECONDS COMMAND…",
                   "This is how 'fullwatt tune' runs a trial; it is not meant for people."});
  }
  tune::SandboxOptions options;
  options.scratch = arguments[0];
  options.writable = {arguments[1]};
  if (const auto inside = tune::enter_sandbox(options); !inside) return report(inside.error(), kNotExamined);
  const auto status = tune::supervise({arguments.begin() + 3, arguments.end()}, std::chrono::milliseconds(*limit));
  return status ? *status : report(status.error());
}

}  // namespace fullwatt::cli
