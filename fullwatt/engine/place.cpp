#include "fullwatt/engine/place.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "fullwatt/base/text.hpp"

namespace fullwatt::engine {
namespace {

using base::Error;

constexpr int kMostProcesses = 1 << 20;
constexpr int kMostPort = 65535;
constexpr int kUsualPort = 29500;  // torch's own

/// What starts processes, and by which variables it tells them their places.
struct Launcher {
  const char* name;
  std::array<const char*, 2> marks;  ///< one of them set: it was this one
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};

/// The first that is there counts. mpirun may start its processes by srun, and they inherit Slurm's variables; srun may
/// set those of PMI. A batch script, which is one process, has all of Slurm's but those of a step.
constexpr std::array kLaunchers{
    Launcher{"torchrun", {"RANK", "WORLD_SIZE"}, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    Launcher{"Open MPI",
             {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
             "OMPI_COMM_WORLD_RANK",
             "OMPI_COMM_WORLD_SIZE",
             "OMPI_COMM_WORLD_LOCAL_RANK",
             "OMPI_COMM_WORLD_LOCAL_SIZE"},
    Launcher{
        "mpirun", {"MPI_LOCALRANKID", "MPI_LOCALNRANKS"}, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    Launcher{"srun",
             {"SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_TASKS"},
             "SLURM_PROCID",
             "SLURM_STEP_NUM_TASKS",
             "SLURM_LOCALID",
             "SLURM_STEP_TASKS_PER_NODE"},
    Launcher{"mpirun", {"PMI_RANK", "PMI_SIZE"}, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
};

/// The first of a list as Slurm writes it: "gpu[003-007,9],login" → "gpu003".
std::string first_node(std::string_view nodes) {
  std::string first;
  for (std::size_t i = 0; i < nodes.size() && nodes[i] != ','; ++i) {
    if (nodes[i] != '[') {
      first += nodes[i];
      continue;
    }
    const auto end = nodes.find(']', i);
    if (end == std::string_view::npos) return {};
    const auto numbers = nodes.substr(i + 1, end - i - 1);
    first += numbers.substr(0, numbers.find_first_of("-,"));
    i = end;
  }
  return first;
}

/// Variables as the one launcher sets them that started this process.
class Variables {
 public:
  explicit Variables(const Environment& environment) : environment_(environment) {
    const auto found = std::ranges::find_if(kLaunchers, [&](const Launcher& launcher) {
      return std::ranges::any_of(launcher.marks, [&](const char* mark) { return !text(mark).empty(); });
    });
    if (found != kLaunchers.end()) launcher_ = &*found;
  }

  bool are_there() const { return launcher_ != nullptr; }

  base::Result<Place> place() const {
    Place place;
    const auto size = needed(launcher_->size, 1, kMostProcesses);
    if (!size) return std::unexpected(size.error());
    place.size = *size;
    const auto rank = needed(launcher_->rank, 0, place.size - 1);
    if (!rank) return std::unexpected(rank.error());
    place.rank = *rank;
    if (place.size == 1) return place;
    const auto local_rank = needed(launcher_->local_rank, 0, place.size - 1);
    if (!local_rank) return std::unexpected(local_rank.error());
    place.local_rank = *local_rank;
    place.local_size = std::max(local_size(), place.local_rank + 1);
    return with_meeting(std::move(place));
  }

 private:
  std::string_view text(const char* name) const {
    const char* value = environment_(name);
    return value != nullptr ? base::trim(value) : std::string_view{};
  }

  /// Nothing where it is not set.
  base::Result<std::optional<int>> number(const char* name, int least, int most) const {
    const auto value = text(name);
    if (value.empty()) return std::nullopt;
    const auto number = base::number<int>(value);
    if (!number || *number < least || *number > most)
      return base::fail(Error::Kind::bad_input,
                        std::string(name) + " must be a number from " + std::to_string(least) + " to " +
                            std::to_string(most) + ", not '" + base::printable(value, 60) + "'",
                        remedy());
    return number;
  }

  base::Result<int> needed(const char* name, int least, int most) const {
    const auto found = number(name, least, most);
    if (!found) return std::unexpected(found.error());
    if (!*found)
      return base::fail(Error::Kind::bad_input,
                        std::string(name) + " is not set, though other variables of " + launcher_->name + " are",
                        remedy());
    return **found;
  }

  std::string remedy() const {
    return std::string(launcher_->name) + " sets " + launcher_->rank + ", " + launcher_->size + " and " +
           launcher_->local_rank + ": set all, or none for one process alone.";
  }

  base::Result<Place> with_meeting(Place place) const {
    place.master = master(place);
    if (place.master.empty())
      return base::fail(Error::Kind::bad_input,
                        "MASTER_ADDR is not set, and " + std::string(launcher_->name) +
                            " does not say where the processes are to meet",
                        "Set MASTER_ADDR, the same for all, to the name or address of the machine of rank 0.");
    const auto port = number("MASTER_PORT", 1, kMostPort);
    if (!port) return std::unexpected(port.error());
    place.port = port->value_or(usual_port());
    place.is_served = text("TORCHELASTIC_USE_AGENT_STORE") == "True";
    place.attempt = base::number<int>(text("TORCHELASTIC_RESTART_COUNT")).value_or(0);
    return place;
  }

  std::string master(const Place& place) const {
    if (const auto given = text("MASTER_ADDR"); !given.empty()) return std::string(given);
    if (place.local_size == place.size) return "127.0.0.1";
    // The node that srun was called on may be another than that of rank 0.
    for (const auto* nodes : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"}) {
      if (auto node = first_node(text(nodes)); !node.empty()) return node;
    }
    return std::string(text("SLURM_LAUNCH_NODE_IPADDR"));
  }

  /// Slurm tells it for every node: "4(x2),3".
  int local_size() const {
    const auto value = text(launcher_->local_size);
    return base::number<int>(value.substr(0, value.find_first_of("(,"))).value_or(0);
  }

  /// Of its own for every step of a job, below those that the kernel gives to connections.
  int usual_port() const {
    constexpr std::uint64_t kFirst = 15000;
    constexpr std::uint64_t kPorts = 14000;
    constexpr std::uint64_t kStepsOfJob = 16;
    const auto job = base::number<std::uint64_t>(text("SLURM_JOB_ID"));
    if (!job) return kUsualPort;
    const auto step = base::number<std::uint64_t>(text("SLURM_STEP_ID")).value_or(0);
    return static_cast<int>(kFirst + (*job * kStepsOfJob + step % kStepsOfJob) % kPorts);
  }

  const Environment& environment_;
  const Launcher* launcher_ = nullptr;
};

}  // namespace

base::Result<Place> place_here(const Environment& environment) {
  const Variables variables(environment);
  return variables.are_there() ? variables.place() : Place{};
}

}  // namespace fullwatt::engine
