#pragma once

#include <chrono>

// torch's ProcessGroupGloo.hpp includes Gloo's headers, which PyTorch's packages lack; the library is inside
// libtorch_cpu. These declarations are all that the header needs: it holds pointers to Gloo's objects, and we never
// touch one. Nothing of Gloo is called or laid out by our code.
namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

namespace transport {
class Device;
class UnboundBuffer;
}  // namespace transport

}  // namespace gloo
