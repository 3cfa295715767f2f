#include "fullwatt/vendor/python/frames.hpp"

#include <algorithm>

#include <sys/uio.h>
#include <unistd.h>

namespace fullwatt::vendor::python {
namespace {

constexpr std::size_t kWord = sizeof(std::uintptr_t);
constexpr std::size_t kStateWords = 64;  ///< of a thread's state, in which the pointer to its frames lies
constexpr std::size_t kMostKnown = 200;  ///< frames of the known stack
constexpr std::size_t kMostForeign = 3;  ///< frames in a row that the interpreter puts between those it tells of
constexpr std::uintptr_t kTags = 7;      ///< Python 3.14 keeps marks in the low bits of pointers
constexpr std::int32_t kMostInstructions = 1 << 24;

struct Python {
  Object* (*state)() = nullptr;
  Object* (*frame)() = nullptr;
  Object* (*back)(Object*) = nullptr;
  Object* (*code)(Object*) = nullptr;
  int (*last_instruction)(Object*) = nullptr;
  Object* (*attribute)(Object*, const char*) = nullptr;
  long (*number)(Object*) = nullptr;
  void (*take)(Object*) = nullptr;
  void (*drop)(Object*) = nullptr;
  void (*clear_error)() = nullptr;
  Object* code_type = nullptr;

  bool complete = find(state, "PyThreadState_Get") && find(frame, "PyEval_GetFrame") && find(back, "PyFrame_GetBack") &&
                  find(code, "PyFrame_GetCode") && find(last_instruction, "PyFrame_GetLasti") &&
                  find(attribute, "PyObject_GetAttrString") && find(number, "PyLong_AsLong") &&
                  find(take, "Py_IncRef") && find(drop, "Py_DecRef") && find(clear_error, "PyErr_Clear") &&
                  find(code_type, "PyCode_Type");
};

const Python& interpreter() {
  static const Python kFound;
  return kFound;
}

/// Whether something can be a frame's address at all. What is read while the thread goes on may be anything.
bool is_address(std::uintptr_t word) {
  constexpr std::uintptr_t kLowest = 1U << 16U;  // Linux maps nothing below
  constexpr std::uintptr_t kHighest = 1ULL << 56U;
  return word >= kLowest && word < kHighest && word % kWord == 0;
}

/// For the system call alone, which says whether anything is there.
void* pointer(std::uintptr_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

/// Copies memory of this process that may not be there.
bool copy(std::uintptr_t from, void* to, std::size_t bytes) {
  iovec local{to, bytes};
  iovec remote{pointer(from), bytes};
  return ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0) == static_cast<ssize_t>(bytes);
}

std::uintptr_t word_at(std::uintptr_t address) {
  std::uintptr_t word = 0;
  return copy(address, &word, sizeof(word)) ? word : 0;
}

/// Where the instructions of a code object begin.
std::uintptr_t first_instruction(const Python& py) {
  auto* size = py.attribute(py.code_type, "__basicsize__");
  if (size == nullptr) return 0;
  const auto bytes = py.number(size);
  py.drop(size);
  return bytes > 0 ? static_cast<std::uintptr_t>(bytes) : 0;
}

}  // namespace

/// A copy of the memory around the innermost frame, where most of the others lie too, made in one go. Others are copied
/// one by one. All addresses are possible ones.
class FrameReader::Copied {
 public:
  explicit Copied(std::uintptr_t innermost) : begin_(innermost & ~(kPage - 1)), end_(innermost + sizeof(Frame)) {
    // The page of the frame first: of those below it some may not exist, and what comes before them is still copied.
    std::array<iovec, kPages> local{};
    std::array<iovec, kPages> remote{};
    for (std::size_t i = 0; i < kPages; ++i) {
      const auto at = begin_ - i * kPage;
      const auto bytes = i == 0 ? end_ - begin_ : kPage;
      local[i] = {bytes_.data() + (kPages - 1 - i) * kPage, bytes};
      remote[i] = {pointer(at), bytes};
    }
    const auto copied = ::process_vm_readv(::getpid(), local.data(), kPages, remote.data(), kPages, 0);
    const auto first = static_cast<ssize_t>(end_ - begin_);
    lowest_ = copied < first ? end_ : begin_ - static_cast<std::uintptr_t>(copied - first) / kPage * kPage;
  }
  bool get(std::uintptr_t address, Frame& frame) const {
    if (address < lowest_ || address > end_ - sizeof(Frame)) return copy(address, frame.data(), sizeof(Frame));
    const auto offset = address - (begin_ - (kPages - 1) * kPage);
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(offset), sizeof(Frame),
                reinterpret_cast<std::byte*>(frame.data()));
    return true;
  }

 private:
  static constexpr std::uintptr_t kPage = 4096;
  static constexpr std::size_t kPages = 4;

  std::uintptr_t begin_;  ///< of the innermost frame's page
  std::uintptr_t end_;
  std::uintptr_t lowest_ = 0;
  std::array<std::byte, (kPages + 1) * kPage> bytes_;
};

std::optional<FrameReader> FrameReader::of_this_thread() {
  const auto& py = interpreter();
  if (!py.complete) return std::nullopt;
  std::vector<Known> stack;
  auto* frame = py.frame();
  if (frame != nullptr) py.take(frame);
  while (frame != nullptr && stack.size() < kMostKnown) {
    auto* code = py.code(frame);
    stack.push_back({reinterpret_cast<std::uintptr_t>(code), py.last_instruction(frame)});
    py.drop(code);
    auto* outer = py.back(frame);
    py.drop(frame);
    frame = outer;
  }
  if (frame != nullptr) py.drop(frame);
  py.clear_error();
  FrameReader reader(reinterpret_cast<std::uintptr_t>(py.state()), first_instruction(py), {});
  if (stack.size() < 2 || !reader.learn(stack)) return std::nullopt;
  return reader;
}

bool FrameReader::learn(const std::vector<Known>& stack) {
  for (layout_.top = 0; layout_.top < kStateWords; ++layout_.top) {
    for (const auto by : {std::optional<std::size_t>{}, std::optional<std::size_t>{0}, std::optional<std::size_t>{1}}) {
      layout_.by = by;
      if (learn_frame(stack)) return true;
    }
  }
  return false;
}

bool FrameReader::learn_frame(const std::vector<Known>& stack) {
  Frame first{};
  const auto top = innermost();
  if (!is_address(top) || !copy(top, first.data(), sizeof(first))) return false;
  for (layout_.code = 0; layout_.code < kFrameWords; ++layout_.code) {
    if ((first[layout_.code] & ~kTags) != stack.front().code) continue;
    for (layout_.previous = 0; layout_.previous < kFrameWords; ++layout_.previous) {
      if (const auto frames = frames_of(stack); frames.size() == stack.size() && learn_instruction(stack, frames))
        return true;
    }
  }
  return false;
}

/// The frames of the known stack in their order, as far as they are found with what is assumed by now.
std::vector<FrameReader::Frame> FrameReader::frames_of(const std::vector<Known>& stack) const {
  std::vector<Frame> frames;
  Frame frame{};
  std::size_t foreign = 0;
  for (auto at = innermost(); frames.size() < stack.size() && foreign <= kMostForeign;) {
    if (!is_address(at) || !copy(at, frame.data(), sizeof(frame))) break;
    const bool expected = (frame[layout_.code] & ~kTags) == stack[frames.size()].code;
    foreign = expected ? 0 : foreign + 1;
    if (expected) frames.push_back(frame);
    at = frame[layout_.previous];
  }
  return frames;
}

/// The innermost frame is at work, so that only the others are held against what is known.
bool FrameReader::learn_instruction(const std::vector<Known>& stack, const std::vector<Frame>& frames) {
  for (layout_.instruction = 0; layout_.instruction < kFrameWords; ++layout_.instruction) {
    bool agree = true;
    for (std::size_t i = 1; i < frames.size() && agree; ++i)
      agree = instruction_in(frames[i], stack[i].code) == stack[i].instruction;
    if (agree) return true;
  }
  return false;
}

std::uintptr_t FrameReader::innermost() const {
  const auto word = word_at(thread_ + layout_.top * kWord);
  return !layout_.by || word == 0 ? word : word_at(word + *layout_.by * kWord);
}

std::int32_t FrameReader::instruction_in(const Frame& frame, std::uintptr_t code) const {
  const auto bytes = static_cast<std::intptr_t>(frame[layout_.instruction] - (code + first_instruction_));
  return bytes >= 0 && bytes < kMostInstructions ? static_cast<std::int32_t>(bytes) : 0;
}

std::size_t FrameReader::read(std::span<Place> places) const {
  const auto top = innermost();
  if (!is_address(top)) return 0;
  const Copied memory(top);
  Frame frame{};
  std::size_t count = 0;
  for (auto at = top; is_address(at) && count < places.size() && memory.get(at, frame); at = frame[layout_.previous]) {
    const auto code = frame[layout_.code] & ~kTags;
    places[count++] = {code, instruction_in(frame, code)};
  }
  return count;
}

}  // namespace fullwatt::vendor::python
