#include "fullwatt/explain/replay.hpp"

#include <algorithm>
#include <array>

#include "fullwatt/explain/causes.hpp"
#include "fullwatt/explain/replay_data.hpp"

namespace fullwatt::explain {
namespace {

bool same_place(const std::optional<model::Site>& wanted, const model::Site& line) {
  return !wanted || (wanted->file == line.file && wanted->line == line.line);
}

bool fits(const Change::KernelScale& scale, const KernelClass& kind) {
  return (scale.kind.empty() || scale.kind == kind.kind) &&
         (scale.precision.empty() || scale.precision == kind.precision);
}

/// What remains of a cause at a line in a phase.
double remaining(const Change& change, std::string_view cause, const model::Site& line,
                 std::optional<HostPhase> phase) {
  double factor = 1;
  for (const auto& removal : change.removals) {
    if (removal.cause != cause || !same_place(removal.line, line)) continue;
    if (removal.phase && phase && *removal.phase != *phase) continue;
    factor *= 1 - std::clamp(removal.share, 0.0, 1.0);
  }
  return factor;
}

double kernel_factor(const Change& change, const KernelClass& kind) {
  double factor = 1;
  for (const auto& scale : change.kernels) {
    if (fits(scale, kind)) factor *= std::max(0.0, scale.factor);
  }
  return factor;
}

/// Without a recording to play: the charges are what they are.
double by_charges(const Replay::Data& data, const Change& change) {
  double step = data.measured_ms;
  for (const auto& charge : data.charges) {
    step -= charge.ms * (1 - remaining(change, charge.cause, charge.line, charge.phase));
  }
  for (const auto& use : data.kernels) step += use.ms * (kernel_factor(change, use.kind) - 1);
  return step;
}

/// What the GPU needs for its work, with factors by group.
double busy_ms(const Replay::Data& data, const std::vector<float>& group_factors) {
  double before = 0;
  double after = 0;
  for (const auto& operation : data.operations) {
    if (operation.kind != ReplayOperation::Kind::launch) continue;
    before += operation.gpu_ms;
    after += operation.gpu_ms * group_factors[operation.key];
  }
  return before > 0 ? data.busy_ms * after / before : 0;
}

double by_playing(const Replay::Data& data, const Change& change) {
  std::vector<float> key_factors;
  for (const auto& key : data.keys) {
    key_factors.push_back(static_cast<float>(remaining(change, cause_of(key.work), key.line, key.phase)));
  }
  std::vector<float> group_factors;
  for (const auto& group : data.groups) {
    const double left = remaining(change, group.cause, group.line, std::nullopt);
    const bool kernel = !group.kind.kind.starts_with("copy-");
    group_factors.push_back(static_cast<float>(left * (kernel ? kernel_factor(change, group.kind) : 1)));
  }
  const double scale = data.played_ms > 0 ? data.measured_ms / data.played_ms : 1;
  const double loader = data.loader_floor_ms * remaining(change, cause::kDataWait, {}, std::nullopt);
  return std::max({play(data, key_factors, group_factors) * scale, loader, busy_ms(data, group_factors)});
}

/// Kernels that compute cannot be removed, only made faster; what is unexplained nobody can remove.
bool removable(const model::Cause& cause) {
  constexpr std::array kNot{cause::kUnexplained, cause::kForward, cause::kBackward, cause::kOptimizer};
  if (std::ranges::find(kNot, cause.id) != kNot.end()) return false;
  constexpr std::array kMoves{cause::kGpuCopyToDevice, cause::kGpuCopyToHost, cause::kCommunication};
  return !cause.gpu_busy || std::ranges::find(kMoves, cause.id) != kMoves.end();
}

}  // namespace

Change& Change::operator+=(const Change& other) {
  removals.insert(removals.end(), other.removals.begin(), other.removals.end());
  kernels.insert(kernels.end(), other.kernels.begin(), other.kernels.end());
  return *this;
}

double play(const Replay::Data& data, const std::vector<float>& key_factors, const std::vector<float>& group_factors) {
  // Twice, and the second time counts: the first begins with an empty queue.
  std::array<double, 2> finished{};
  double host = 0;
  std::vector<double> free(data.streams, 0);
  std::vector<double> done(data.operations.size(), 0);
  using Kind = ReplayOperation::Kind;
  for (auto& end : finished) {
    for (std::size_t i = 0; i < data.operations.size(); ++i) {
      const auto& operation = data.operations[i];
      const double other = operation.depends_on < 0 ? 0 : done[static_cast<std::size_t>(operation.depends_on)];
      if (operation.kind == Kind::launch) {
        auto& stream = free[operation.stream];
        stream = std::max({host, stream, other}) + operation.gpu_ms * group_factors[operation.key];
        done[i] = stream;
      } else {
        const double factor = key_factors[operation.key];
        if (operation.kind == Kind::wait) host += std::max(0.0, other - host) * factor;
        const bool launching = data.keys[operation.key].work == Work::launch;
        host += operation.host_ms * factor * (launching ? data.launch_scale : 1);
      }
    }
    end = std::max(host, free.empty() ? 0.0 : *std::ranges::max_element(free));
  }
  return (finished[1] - finished[0]) / data.steps;
}

Replay::Replay() : data_(std::make_unique<Data>()) {}
Replay::Replay(std::unique_ptr<Data> data) : data_(std::move(data)) {}
Replay::~Replay() = default;
Replay::Replay(Replay&&) noexcept = default;
Replay& Replay::operator=(Replay&&) noexcept = default;

bool Replay::simulates() const {
  return !data_->operations.empty();
}

double Replay::baseline_ms() const {
  return data_->measured_ms;
}

double Replay::step_ms(const Change& change) const {
  const double step = simulates() ? by_playing(*data_, change) : by_charges(*data_, change);
  const bool slower = std::ranges::any_of(change.kernels, [](const auto& scale) { return scale.factor > 1; });
  return slower ? std::max(0.0, step) : std::clamp(step, 0.0, data_->measured_ms);
}

double Replay::gain_ms(const Change& change) const {
  return std::max(0.0, baseline_ms() - step_ms(change));
}

void price(std::vector<model::Cause>& causes, const Replay& replay) {
  std::vector<model::Cause*> open;
  for (auto& cause : causes) {
    if (!removable(cause)) continue;
    cause.gain_alone_ms = replay.gain_ms(Change::without(cause.id));
    open.push_back(&cause);
  }
  Change removed;
  double step = replay.baseline_ms();
  while (!open.empty()) {
    std::vector<double> left;
    for (const auto* cause : open) {
      auto change = removed;
      left.push_back(replay.step_ms(change += Change::without(cause->id)));
    }
    const auto best = std::ranges::min_element(left) - left.begin();
    auto* cause = open[static_cast<std::size_t>(best)];
    cause->gain_after_ms = std::max(0.0, step - left[static_cast<std::size_t>(best)]);
    step = std::min(step, left[static_cast<std::size_t>(best)]);
    removed += Change::without(cause->id);
    open.erase(open.begin() + best);
  }
}

}  // namespace fullwatt::explain
