#pragma once

#include "fullwatt/engine/optimizer.hpp"
#include "fullwatt/engine/tensor_file.hpp"

namespace fullwatt::engine {

/// Where a training goes on.
struct Position {
  std::uint64_t epoch = 0;
  std::uint64_t batch = 0;  ///< the next one of the epoch
  std::uint64_t step = 0;   ///< that are done
};

/// These tensors and the random state of the CPU and of the device, on the CPU while they are written. Fails, and
/// writes nothing, where one of them holds what is no number.
base::Result<void> save_checkpoint(const std::string& path, const Named& tensors, at::Device device,
                                   const Position& position);
/// Puts what was saved into these tensors.
base::Result<Position> load_checkpoint(const std::string& path, const Named& tensors, at::Device device);
/// The same from a file that holds only some of what a checkpoint does, such as weights.
base::Result<void> load_tensors(const std::string& path, const Named& tensors);

/// A folder's checkpoints, the newest first.
std::vector<std::string> checkpoints_in(const std::string& folder);
/// All but the three newest.
void remove_old_checkpoints(const std::string& folder);
/// Moves all of them into a folder of their own in it, and names that; empty where there are none.
base::Result<std::string> put_checkpoints_aside(const std::string& folder);
std::string checkpoint_path(const std::string& folder, std::uint64_t step);

}  // namespace fullwatt::engine
