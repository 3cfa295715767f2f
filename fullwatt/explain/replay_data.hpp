#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fullwatt/explain/attribution.hpp"
#include "fullwatt/explain/kernels.hpp"
#include "fullwatt/explain/replay.hpp"
#include "fullwatt/explain/timeline.hpp"

/// What a Replay holds. Apart from the interface, so that building and playing are two files.
namespace fullwatt::explain {

/// Host work of one kind, at one line, in one phase.
struct ReplayKey {
  Work work = Work::unexplained;
  HostPhase phase = HostPhase::rest;
  model::Site line;
};

/// GPU work of one kind, launched from one line.
struct ReplayGroup {
  std::string cause;
  KernelClass kind;
  model::Site line;
};

/// One thing the host does. A launch also puts something on the GPU, a wait also waits for it.
struct ReplayOperation {
  enum class Kind : std::uint8_t { work, launch, wait };
  Kind kind = Kind::work;
  std::uint16_t stream = 0;
  std::uint32_t key = 0;  ///< work and wait: index in keys; launch: index in groups
  float host_ms = 0;      ///< of a wait: what remains of it when the GPU is done
  float gpu_ms = 0;
  std::int32_t depends_on = -1;  ///< launch: an operation of another stream; wait: what it waits for
};

struct Replay::Data {
  double measured_ms = 0;
  std::vector<Charge> charges;  ///< for runs that cannot be played
  std::vector<KernelUse> kernels;

  std::vector<ReplayKey> keys;
  std::vector<ReplayGroup> groups;
  std::vector<ReplayOperation> operations;
  std::size_t streams = 0;
  double steps = 0;
  double launch_scale = 1;     ///< takes the cost of recording from the launches
  double loader_floor_ms = 0;  ///< a step cannot be shorter while the loader gives no more
  double busy_ms = 0;          ///< of the GPU in a step; its streams overlap as they did, however fast the host is
  double played_ms = 0;        ///< the baseline as it is played; meets measured_ms by a factor
};

/// Length of a step, played; before the factor and the floor. Factors by key and by group.
double play(const Replay::Data& data, const std::vector<float>& key_factors, const std::vector<float>& group_factors);

}  // namespace fullwatt::explain
