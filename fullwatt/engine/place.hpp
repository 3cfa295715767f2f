#pragma once

#include <functional>
#include <string>

#include "fullwatt/base/error.hpp"

/// This header knows nothing of torch.
namespace fullwatt::engine {

/// Which of a training's processes this one is, and where they meet.
struct Place {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  ///< among those of this machine: its GPU
  int local_size = 1;  ///< how many those are, as far as the launcher says
  std::string master;  ///< the machine where they meet; empty for one process alone
  int port = 0;
  bool is_served = false;  ///< the launcher answers there; otherwise rank 0 does
  int attempt = 0;         ///< how often the launcher has started all of them again
};

/// The value of a variable, or null, as `getenv` has it.
using Environment = std::function<const char*(const char* name)>;

/// By the variables of torchrun, mpirun or srun; one process alone where there are none.
base::Result<Place> place_here(const Environment& environment);

}  // namespace fullwatt::engine
