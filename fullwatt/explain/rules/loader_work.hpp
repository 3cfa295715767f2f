#pragma once

#include <optional>

#include "fullwatt/explain/evidence.hpp"

namespace fullwatt::explain {

/// How the batches of a training are made, as the loader's processes timed it.
struct LoaderWork {
  int workers = 0;           ///< 0: the training process makes them itself
  double batches = 0;        ///< that were timed; 0: nothing is known
  double batch_ms = 0;       ///< one batch in one process, mean
  double cpu_share = 0;      ///< of that time, computing
  double collate_share = 0;  ///< of that time, putting samples together
  double read_mb = 0;        ///< of a batch, from the disk
  double samples = 0;        ///< of a batch
  double slow_ratio = 1;     ///< the slowest twentieth against the usual batch
  double slow_worker = 1;    ///< the slowest worker's mean against the usual worker's
  double batches_of_step = 1;
  double wait_ms = 0;        ///< of a step, the training waits for data
  double usual_wait_ms = 0;  ///< the same in the median: a wait of every step, not of a few
  double gain_ms = 0;        ///< of a step, were the data always there
  double step_ms = 0;

  bool known() const { return batches > 0; }
  /// The time in which so many workers make the batches of one step.
  double supply_ms(double count) const { return count > 0 ? batch_ms * batches_of_step / count : 0; }
  /// Part of the time in which the workers are busy, 0 to 1.
  double busy() const;
  /// What so many workers would give: as fast as they deliver, at best as if the data were always there.
  double gain_with(double count) const;
};
LoaderWork measure_loader(const Evidence& evidence);
/// What a step would still wait for a function of the program's own that puts samples together to batches of several
/// sizes, were these in memory; nothing where the training has none.
std::optional<double> padding_ms(const Evidence& evidence);

}  // namespace fullwatt::explain
