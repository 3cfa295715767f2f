#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "fullwatt/vendor/python/interpreter.hpp"

namespace fullwatt::vendor::python {

/// Where a frame is: the address of its code object, and the last instruction in bytes from its beginning. The code
/// object may be gone by now: only KnownCodes may look at it.
struct Place {
  std::uintptr_t code = 0;
  std::int32_t instruction = 0;

  bool operator==(const Place&) const = default;
};

/// Reads the stack of one thread from another one, without the interpreter's lock, so that the thread that is read does
/// not notice. It copies memory by a system call that fails where a plain look would crash, and what changes while it
/// looks gives a stack of a moment before or after, at worst one with a frame too many.
class FrameReader {
 public:
  /// Positions in words of eight bytes.
  struct Layout {
    std::size_t top = 0;            ///< of the pointer in the thread's state
    std::optional<std::size_t> by;  ///< of the pointer to the frame in what that one points to, unless it is the frame
    std::size_t code = 0;           ///< these three in a frame
    std::size_t previous = 0;
    std::size_t instruction = 0;
  };
  static constexpr std::size_t kFrameWords = 10;

  /// Of the thread with this state, where the instructions of a code object begin after so many bytes.
  FrameReader(std::uintptr_t thread, std::uintptr_t first_instruction, const Layout& layout)
      : thread_(thread), first_instruction_(first_instruction), layout_(layout) {}
  /// Learns where this interpreter keeps a thread's frames: by looking, with the lock held, for the stack of the
  /// calling thread, which is known. That thread is the one that will be read. None where its stack is not found
  /// (before Python 3.11, or where the system call is forbidden).
  static std::optional<FrameReader> of_this_thread();

  /// The frames, innermost first; how many they are, none where they could not be read.
  std::size_t read(std::span<Place> places) const;

 private:
  struct Known {
    std::uintptr_t code;
    std::int32_t instruction;
  };
  using Frame = std::array<std::uintptr_t, kFrameWords>;
  class Copied;

  bool learn(const std::vector<Known>& stack);
  bool learn_frame(const std::vector<Known>& stack);
  bool learn_instruction(const std::vector<Known>& stack, const std::vector<Frame>& frames);
  std::vector<Frame> frames_of(const std::vector<Known>& stack) const;
  std::uintptr_t innermost() const;
  std::int32_t instruction_in(const Frame& frame, std::uintptr_t code) const;

  std::uintptr_t thread_;
  std::uintptr_t first_instruction_;  ///< in a code object
  Layout layout_;
};

}  // namespace fullwatt::vendor::python
