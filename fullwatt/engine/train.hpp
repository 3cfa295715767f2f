#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "fullwatt/engine/config.hpp"
#include "fullwatt/engine/otherwise.hpp"
#include "fullwatt/engine/place.hpp"

/// Trains as a configuration says. This header knows nothing of torch.
namespace fullwatt::engine {

struct TrainOptions {
  std::string initial;                      ///< a file with the first weights; empty: by the seed
  bool anew = false;                        ///< do not go on from a checkpoint that is there
  Place place;                              ///< among processes that train together
  const std::atomic<bool>* stop = nullptr;  ///< once true: the step is ended, a checkpoint written
};

/// How far it is. The loss is the mean since the last time.
struct Progress {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  double loss = 0;
  double samples_per_second = 0;
  double rate = 0;  ///< of learning, in the last step
};

/// What is in force, said before the first step.
struct Start {
  std::string device;
  std::string precision;
  std::int64_t parameters = 0;
  std::int64_t samples = 0;
  std::uint64_t steps_per_epoch = 0;
  std::int64_t effective_batch = 0;
  int processes = 1;
  std::uint64_t first_step = 0;
  std::string resumed;  ///< the checkpoint that it goes on from; empty: from the beginning
  std::vector<Otherwise> otherwise;
};

struct TrainListener {
  std::function<void(const Start&)> started = [](const auto&) {};
  std::function<void(const Progress&)> progressed = [](const auto&) {};
  std::function<void(const std::string& what)> noted = [](const auto&) {};
  std::function<void(const std::string& path)> saved = [](const auto&) {};
};

struct Trained {
  std::uint64_t steps = 0;
  bool is_complete = true;  ///< false: it was stopped
  double seconds = 0;
};

base::Result<Trained> train(const Config& config, const TrainOptions& options, const TrainListener& listener);

}  // namespace fullwatt::engine
