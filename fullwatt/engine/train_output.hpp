#pragma once

#include <chrono>
#include <cstdio>
#include <fstream>
#include <optional>

#include "fullwatt/engine/event_file.hpp"
#include "fullwatt/engine/train.hpp"

namespace fullwatt::engine {

/// What a training shows on the terminal and writes beside its checkpoints: metrics.jsonl and a file for TensorBoard.
class TrainOutput {
 public:
  TrainOutput(const Config& config, std::FILE* terminal);

  /// Of this output, which must outlive it.
  TrainListener listener();

 private:
  void start(const Start& start);
  void progress(const Progress& now);
  void say(const std::string& line);
  void tell_settings(const Start& start);
  std::string bar(const Progress& now) const;

  const Config& config_;
  std::FILE* terminal_;
  bool is_live_;             ///< a person looks on: one line that changes
  bool has_line_ = false;    ///< such a line stands there
  std::uint64_t steps_ = 0;  ///< of the whole training
  std::uint64_t first_step_ = 0;
  std::chrono::steady_clock::time_point begun_;
  std::ofstream metrics_;
  std::optional<EventFile> events_;
};

}  // namespace fullwatt::engine
