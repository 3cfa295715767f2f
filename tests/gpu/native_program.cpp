// A program without Python that computes on the first GPU: native_program SECONDS.

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "fullwatt/base/library.hpp"
#include "fullwatt/vendor/cuda/calls.hpp"
#include "fullwatt/vendor/cuda/launch.hpp"

int main(int count, char** arguments) {
  using namespace fullwatt;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(count > 1 ? std::atoi(arguments[1]) : 1);
  const auto library = base::Library::load("libcuda.so.1");
  if (!library) return 1;
  const vendor::cuda::Calls calls(*library);
  if (!calls.init(0).is(0)) return 1;
  long launches = 0;
  while (std::chrono::steady_clock::now() < end) {
    if (!vendor::cuda::launch(calls, 0).kernel.is(0)) return 1;
    ++launches;
  }
  std::printf("launches %ld\n", launches);
  std::_Exit(0);  // threads of the driver run on in a library that would be unmapped
}
