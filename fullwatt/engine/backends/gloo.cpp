#define USE_C10D_GLOO  // torch's library has it

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "fullwatt/engine/backends/backends.hpp"

namespace fullwatt::engine {
namespace {

using c10d::ProcessGroupGloo;

bool is_loopback(const std::string& host) {
  return host.empty() || host == "localhost" || host == "::1" || host.starts_with("127.");
}

/// The addresses that others are told: by GLOO_SOCKET_IFNAME, or that of the machine's name.
c10::intrusive_ptr<ProcessGroupGloo::Options> options_for(const Place& place, std::chrono::milliseconds timeout) {
  if (!is_loopback(place.master)) return ProcessGroupGloo::Options::create_default(timeout);
  auto options = ProcessGroupGloo::Options::create(timeout);
  options->devices.push_back(ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  return options;
}

}  // namespace

base::Result<Backend> make_gloo(const Store& store, const Place& place, std::chrono::milliseconds timeout) {
  return c10::make_intrusive<ProcessGroupGloo>(store, place.rank, place.size, options_for(place, timeout));
}

}  // namespace fullwatt::engine
