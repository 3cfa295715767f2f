#include "fullwatt/record/recorder/line_sampler.hpp"

#include <array>

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

#include "fullwatt/record/spool_writer.hpp"

namespace fullwatt::record {

LineSampler::LineSampler(const vendor::python::FrameReader& reader, vendor::python::KnownCodes& codes,
                         std::chrono::nanoseconds period)
    : reader_(reader), codes_(codes), sampled_(::pthread_self()) {
  // The program's signals are for its own threads.
  sigset_t all{};
  sigset_t before{};
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this, period] { run(period); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void LineSampler::stop() {
  over_ = true;
  if (thread_.joinable()) thread_.join();
}

void LineSampler::run(std::chrono::nanoseconds period) {
  ::pthread_setname_np(::pthread_self(), "fullwatt-lines");
  ::prctl(PR_SET_TIMERSLACK, 1000);  // nanoseconds; the usual 50,000 would stretch every pause
  while (!over_ && samples_.size() < kMostSamples) {
    std::this_thread::sleep_for(period);
    look();
  }
}

void LineSampler::look() {
  std::array<vendor::python::Place, kMostFrames> places;
  const auto at = now_ns();
  const auto count = reader_.read(places);
  if (count == 0 || over_) return;
  learn({places.data(), count});
  const auto next = static_cast<std::uint32_t>(stacks_.size());
  const auto [entry, is_new] = known_.try_emplace(Stack(places.begin(), places.begin() + count), next);
  if (is_new) stacks_.push_back(&entry->first);
  samples_.push_back({at, entry->second});
}

/// What is new is looked for on the stack, with the interpreter's lock; not too often, since that is felt.
void LineSampler::learn(std::span<const vendor::python::Place> places) {
  constexpr std::uint64_t kPauseNs = 1'000'000;
  if (codes_.has_all(places) || now_ns() - learned_ns_ < kPauseNs) return;
  codes_.learn(sampled_);
  codes_.missed(places);
  learned_ns_ = now_ns();
}

std::vector<std::uint64_t> LineSampler::unknown() const {
  constexpr std::size_t kRare = 50;  // in fewer than one sample of so many it does not matter
  std::unordered_map<std::uint64_t, std::size_t> counts;
  for (const auto& sample : samples_) {
    for (const auto& place : *stacks_[sample.stack]) {
      if (!codes_.has(place.code)) ++counts[place.code];
    }
  }
  std::vector<std::uint64_t> found;
  for (const auto& [code, count] : counts) {
    if (count * kRare >= samples_.size()) found.push_back(code);
  }
  return found;
}

std::size_t LineSampler::Hash::operator()(const Stack& stack) const {
  std::size_t sum = stack.size();
  for (const auto& place : stack)
    sum = (sum ^ place.code ^ static_cast<std::size_t>(place.instruction)) * 0x9E3779B97F4A7C15U;
  return sum;
}

}  // namespace fullwatt::record
