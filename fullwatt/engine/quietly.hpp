#pragma once

#include <c10/util/Exception.h>

namespace fullwatt::engine {

/// For what has to be ended on a device that may have failed; whoever uses it next is told.
template <class Work>
void quietly(Work work) {
  try {
    work();
  } catch (const c10::Error&) {
    return;
  }
}

}  // namespace fullwatt::engine
