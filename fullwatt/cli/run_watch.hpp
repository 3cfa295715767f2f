#pragma once

#include <memory>
#include <string>

#include "fullwatt/cli/command.hpp"
#include "fullwatt/model/run.hpp"
#include "fullwatt/record/training.hpp"
#include "fullwatt/show/live_line.hpp"

namespace fullwatt::cli {

struct WatchOptions {
  std::string folder;
  bool live = false;  ///< draw the live line
  int columns = 80;
  bool ascii = false;
  catalog::Language language = catalog::Language::en;
};

/// What was seen of a run from outside.
struct Watched {
  record::Exit exit;
  bool interrupted = false;
  double seconds = 0;
  std::vector<model::RunGpu> gpus;
  std::string no_gpu_samples;  ///< why there are none; empty when there are
  std::string hang;            ///< the hang report's file; empty when it never hung
};

/// Stays with the training until it ends: samples, draws the live line, gives the first verdict as soon as it can be
/// given, and reports a hang.
Watched watch(record::Training& training, const WatchOptions& options);

}  // namespace fullwatt::cli
