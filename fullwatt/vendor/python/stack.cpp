#include "fullwatt/vendor/python/stack.hpp"

#include <array>
#include <cstddef>

#include "fullwatt/vendor/python/interpreter.hpp"

namespace fullwatt::vendor::python {
namespace {

struct Python {
  Object* (*sys_object)(const char*) = nullptr;
  Object* (*call)(Object*, Object*) = nullptr;
  Object* (*from_thread)(unsigned long) = nullptr;
  Object* (*from_int)(long) = nullptr;
  Object* (*item)(Object*, Object*) = nullptr;
  Object* (*back)(Object*) = nullptr;
  Object* (*code)(Object*) = nullptr;
  int (*last_instruction)(Object*) = nullptr;
  Object* (*new_tuple)(std::ptrdiff_t) = nullptr;
  int (*set_item)(Object*, std::ptrdiff_t, Object*) = nullptr;
  void (*take)(Object*) = nullptr;
  void (*drop)(Object*) = nullptr;
  void (*clear_error)() = nullptr;
  int (*disable_collector)() = nullptr;
  int (*enable_collector)() = nullptr;

  bool complete = find(sys_object, "PySys_GetObject") && find(call, "PyObject_CallObject") &&
                  find(from_thread, "PyLong_FromUnsignedLong") && find(from_int, "PyLong_FromLong") &&
                  find(item, "PyDict_GetItemWithError") && find(back, "PyFrame_GetBack") &&
                  find(code, "PyFrame_GetCode") && find(last_instruction, "PyFrame_GetLasti") &&
                  find(new_tuple, "PyTuple_New") && find(set_item, "PyTuple_SetItem") && find(take, "Py_IncRef") &&
                  find(drop, "Py_DecRef") && find(clear_error, "PyErr_Clear") &&
                  find(disable_collector, "PyGC_Disable") && find(enable_collector, "PyGC_Enable");
};

const Python& interpreter() {
  static const Python kFound;
  return kFound;
}

/// No garbage collection as long as it lives: what that calls is Python code, in the midst of which the interpreter's
/// lock goes to another thread. (Python 3.11 collects whenever something is created; newer ones only between
/// instructions.)
class CollectorOff {
 public:
  explicit CollectorOff(const Python& py) : py_(py), was_enabled_(py.disable_collector() != 0) {}
  ~CollectorOff() {
    if (was_enabled_) py_.enable_collector();
  }
  CollectorOff(const CollectorOff&) = delete;
  CollectorOff& operator=(const CollectorOff&) = delete;

 private:
  const Python& py_;
  bool was_enabled_;
};

struct Place {
  Object* code = nullptr;
  int instruction = 0;
};
constexpr std::size_t kMostFrames = 120;

/// A new reference to the innermost frame; null when the thread has none.
Object* innermost_frame(const Python& py, unsigned long thread) {
  auto* function = py.sys_object("_current_frames");
  auto* frames = function == nullptr ? nullptr : py.call(function, nullptr);
  if (frames == nullptr) return nullptr;
  auto* key = py.from_thread(thread);
  auto* frame = key == nullptr ? nullptr : py.item(frames, key);
  if (frame != nullptr) py.take(frame);
  if (key != nullptr) py.drop(key);
  py.drop(frames);
  return frame;
}

Object* tuple_of(const Python& py, const std::array<Place, kMostFrames>& places, std::size_t count) {
  auto* tuple = py.new_tuple(static_cast<std::ptrdiff_t>(2 * count));
  for (std::size_t i = 0; i < count; ++i) {
    if (tuple == nullptr) {
      py.drop(places[i].code);
      continue;
    }
    const auto at = static_cast<std::ptrdiff_t>(2 * i);
    py.set_item(tuple, at, places[i].code);
    py.set_item(tuple, at + 1, py.from_int(places[i].instruction));
  }
  return tuple;
}

}  // namespace

bool stacks_known() {
  return interpreter().complete;
}

void* stack_of(unsigned long thread) {
  const auto& py = interpreter();
  if (!py.complete) return nullptr;
  const CollectorOff no_collection(py);
  std::array<Place, kMostFrames> places;
  std::size_t count = 0;
  auto* frame = innermost_frame(py, thread);
  while (frame != nullptr && count < places.size()) {
    places[count++] = {py.code(frame), py.last_instruction(frame)};
    auto* outer = py.back(frame);
    py.drop(frame);
    frame = outer;
  }
  if (frame != nullptr) py.drop(frame);
  auto* tuple = tuple_of(py, places, count);
  py.clear_error();
  return tuple;
}

}  // namespace fullwatt::vendor::python
