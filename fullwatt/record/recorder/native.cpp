#include "fullwatt/record/recorder/native.hpp"

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include <unistd.h>

#include "fullwatt/record/recorder/capture.hpp"
#include "fullwatt/record/recorder/recorder.h"

namespace fullwatt::record {
namespace {

using namespace std::chrono_literals;

constexpr auto kWarmUp = 3s;
constexpr auto kWindow = 1s;

/// A program in another language has no steps that we know of: windows come by the clock.
void record_by_the_clock() {
  std::this_thread::sleep_for(kWarmUp);
  for (auto pause = 45s; forked() == false; pause *= 2) {
    for (const auto mode : {Window::times, Window::causes}) {
      auto* capture = native_capture();
      if (capture == nullptr || !capture->has_room()) return;
      // Where it cannot be opened, the spool says why.
      if (capture->open(mode)) std::this_thread::sleep_for(kWindow);
      capture->close();
      std::this_thread::sleep_for(kWindow);
    }
    std::this_thread::sleep_for(pause);
  }
}

/// The agent names its process; a child that inherited the variable is another one.
bool agent_is_here() {
  const char* pid = std::getenv("FULLWATT_AGENT");
  return pid != nullptr && std::to_string(::getpid()) == pid;
}

}  // namespace

int start_native() {
  const char* folder = std::getenv("FULLWATT_RUN");
  if (folder == nullptr || forked() || agent_is_here() || native_capture() != nullptr) return 1;
  if (fullwatt_open(folder, static_cast<int>(Role::native), -1) == 0) std::thread(record_by_the_clock).detach();
  return 1;
}

}  // namespace fullwatt::record
