#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>

#include "fullwatt/vendor/python/frames.hpp"

namespace fullwatt::vendor::python {

/// The code objects whose addresses mean something: they are kept alive from the moment they are known. Frames are read
/// without the interpreter's lock, and what they name may be gone a moment later, its memory somebody else's.
class KnownCodes {
 public:
  /// Keeps those on the stack of a thread. Waits for the interpreter's lock, which the caller may hold already.
  void learn(unsigned long thread);
  /// Keeps one. To be called with the interpreter's lock held.
  void keep(Object* code);
  bool has(std::uintptr_t code) const { return known_.contains(code); }
  /// Whether all are known, or not worth looking for any more.
  bool has_all(std::span<const Place> places) const;
  /// Those of these that are not known were not found on the stack though they had been read from it: they were gone
  /// already, or are the interpreter's own, which it never tells of.
  void missed(std::span<const Place> places);
  void hope_again() { misses_.clear(); }

  /// A new tuple (code, instruction, code, …) of those that are known. To be called with the interpreter's lock held.
  Object* tuple_of(std::span<const Place> places) const;

 private:
  static constexpr std::size_t kMost = 50'000;
  static constexpr int kMostMisses = 5;

  std::unordered_map<std::uintptr_t, Object*> known_;
  std::unordered_map<std::uintptr_t, int> misses_;
};

}  // namespace fullwatt::vendor::python
