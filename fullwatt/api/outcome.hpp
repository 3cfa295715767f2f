#pragma once

#include <stdexcept>

#include <c10/util/Exception.h>

#include "fullwatt/base/error.hpp"
#include "fullwatt/base/text.hpp"

/// From the errors of the libraries below to those of the public classes.
namespace fullwatt::api {

[[noreturn]] inline void raise(const base::Error& error) {
  throw std::runtime_error(error.remedy.empty() ? error.message : error.message + "\n" + error.remedy);
}

template <class T>
T value_of(base::Result<T> result) {
  if (!result) raise(result.error());
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

/// What torch throws comes out in the same form as everything else, without its backtrace.
template <class Work>
auto with_torch(Work work) {
  try {
    return work();
  } catch (const c10::Error& error) {
    throw std::runtime_error("torch: " + base::printable(error.what_without_backtrace(), 400));
  }
}

}  // namespace fullwatt::api
