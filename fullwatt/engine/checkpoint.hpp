#pragma once

#include <torch/nn/module.h>

#include "fullwatt/engine/adamw.hpp"
#include "fullwatt/engine/tensor_file.hpp"

namespace fullwatt::engine {

/// Where a training goes on.
struct Position {
  std::uint64_t epoch = 0;
  std::uint64_t batch = 0;  ///< the next one of the epoch
  std::uint64_t step = 0;   ///< that are done
};

/// Weights, buffers, the optimiser's state and the random state, as tensors; on the CPU while they are written.
base::Result<void> save_checkpoint(const std::string& path, const torch::nn::Module& network, AdamW& optimizer,
                                   const Position& position);
base::Result<Position> load_checkpoint(const std::string& path, torch::nn::Module& network, AdamW& optimizer);

/// Weights alone, by the names that PyTorch gives them.
base::Result<void> load_weights(const std::string& path, torch::nn::Module& network);

/// A folder's checkpoints, the newest first.
std::vector<std::string> checkpoints_in(const std::string& folder);
std::string checkpoint_path(const std::string& folder, std::uint64_t step);

}  // namespace fullwatt::engine
