#include "fullwatt/engine/training_stream.hpp"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "fullwatt/engine/quietly.hpp"

namespace fullwatt::engine {
namespace {

void let_follow(c10::Stream later, c10::Stream earlier) {
  c10::Event so_far(earlier.device_type());
  so_far.record(earlier);
  so_far.block(later);
}

}  // namespace

TrainingStream::TrainingStream(c10::Device device)
    : callers_(c10::impl::VirtualGuardImpl(device.type()).getStream(device)),
      on_own_(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, false)) {
  let_follow(on_own_.current_stream(), callers_);
}

TrainingStream::~TrainingStream() {
  quietly([&] { let_follow(callers_, on_own_.current_stream()); });
}

}  // namespace fullwatt::engine
