#pragma once

#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "fullwatt/base/error.hpp"
#include "fullwatt/doctor/probe/raw.hpp"
#include "fullwatt/model/machine.hpp"

namespace fullwatt::cli {

/// The options with which `doctor` and `select` say which machine to look at.
struct ExaminationOptions {
  std::string python;
  int pid = 0;
  std::string log_file;
  std::string from;
  bool wake = false;
  bool no_torch = false;
  double timeout_s = 60;

  void add_to(CLI::App& command);
};

/// The facts, and the raw form they came from.
struct Examined {
  model::Machine machine;
  doctor::RawMachine raw;
};
base::Result<Examined> examine(const ExaminationOptions& options);

/// As `doctor` does, beside a training. Without an interpreter PyTorch is left out: the training itself tells about it.
base::Result<Examined> look_at_machine(const std::string& python = {});
/// For the explanation of a run.
void keep_machine(const base::Result<Examined>& examined, const std::string& run_folder);

}  // namespace fullwatt::cli
