#pragma once

#include <array>
#include <cstring>
#include <expected>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>

#include "fullwatt/base/library.hpp"
#include "fullwatt/base/reading.hpp"
#include "fullwatt/vendor/nvml/abi.hpp"

namespace fullwatt::vendor::nvml {

using base::Reading;

/// Done, or why not; the absence carries NVML's code.
using Outcome = std::expected<void, base::Absence>;

/// What a return code other than success says about the value that was asked for.
base::Absence absence_of(abi::Return code);
/// The library has none of the names a function goes by.
base::Absence missing_function();

/// NVML's functions, looked up by name when they are called. Names are given newest first: an older driver has only the
/// older ones, and a library that is newer than its kernel module answers kFunctionNotFound for the newer ones.
class Functions {
 public:
  using Names = std::initializer_list<const char*>;

  explicit Functions(const base::Library& library) : library_(library) {}

  template <class... Args>
  Outcome call(Names names, Args... args) const {
    auto why = missing_function();
    for (const char* name : names) {
      auto* function = library_.find<abi::Return(Args...)>(name);
      if (function == nullptr) continue;
      const abi::Return code = function(args...);
      if (code == 0) return {};
      why = absence_of(code);
      if (code != abi::kFunctionNotFound) break;
    }
    return std::unexpected(std::move(why));
  }

  /// The one value that a function writes behind its last argument. `start` holds what NVML wants filled in before.
  template <class Out, class... In>
  Reading<Out> ask_with(Names names, Out start, In... in) const {
    if (const auto outcome = call(names, in..., &start); !outcome) return outcome.error();
    return start;
  }

  template <class Out, class... In>
  Reading<Out> ask(Names names, In... in) const {
    return ask_with(names, Out{}, in...);
  }

  template <class Out, class... In>
  Reading<std::pair<Out, Out>> ask_pair(Names names, In... in) const {
    std::pair<Out, Out> out{};
    if (const auto outcome = call(names, in..., &out.first, &out.second); !outcome) return outcome.error();
    return out;
  }

  template <class... In>
  Reading<std::string> ask_text(Names names, In... in) const {
    std::array<char, abi::kTextBytes> text{};
    const auto outcome = call(names, in..., text.data(), static_cast<unsigned>(text.size()));
    if (!outcome) return outcome.error();
    return std::string(text.data(), ::strnlen(text.data(), text.size()));
  }

 private:
  const base::Library& library_;
};

/// A value made from another one, by a function or a member; why that one is absent is kept.
template <class T, class From, class Make>
Reading<T> derive(const Reading<From>& from, Make make) {
  if (!from) return from.error();
  return std::invoke(make, *from);
}

/// NVML counts in unsigned; what does not fit an int is its way of saying that there is no value.
Reading<int> number(unsigned value);
Reading<int> number(const Reading<unsigned>& value);
Reading<bool> flag(const Reading<unsigned>& value);

}  // namespace fullwatt::vendor::nvml
