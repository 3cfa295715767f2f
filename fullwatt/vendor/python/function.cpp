#include "fullwatt/vendor/python/function.hpp"

#include <algorithm>
#include <cstddef>

#include "fullwatt/vendor/python/interpreter.hpp"

namespace fullwatt::vendor::python {
namespace {

/// PyMethodDef, the same since Python 3.7.
struct Method {
  const char* name;
  Object* (*call)(Object* self, Object* const* arguments, std::ptrdiff_t count);
  int flags;
  const char* documentation;
};
constexpr int kFastCall = 0x0080;  // METH_FASTCALL

struct Python {
  Object* (*new_function)(const Method*, Object* self, Object* module) = nullptr;
  long long (*to_number)(Object*) = nullptr;
  Object* (*from_number)(unsigned long) = nullptr;
  Object* (*error)() = nullptr;
  void (*set_error)(Object*, const char*) = nullptr;
  Object** type_error = nullptr;

  bool complete = find(new_function, "PyCFunction_NewEx") && find(to_number, "PyLong_AsLongLong") &&
                  find(from_number, "PyLong_FromUnsignedLong") && find(error, "PyErr_Occurred") &&
                  find(set_error, "PyErr_SetString") && find(type_error, "PyExc_TypeError");
};

const Python& interpreter() {
  static const Python kFound;
  return kFound;
}

NumberFunction called = nullptr;

Object* call(Object* /*self*/, Object* const* arguments, std::ptrdiff_t count) {
  const auto& py = interpreter();
  if (count != kArguments) {
    py.set_error(*py.type_error, "fullwatt: five numbers are needed");
    return nullptr;
  }
  std::array<std::uint64_t, kArguments> values{};
  for (std::size_t i = 0; i < kArguments; ++i) {
    const auto value = py.to_number(arguments[i]);
    if (value == -1 && py.error() != nullptr) return nullptr;
    values[i] = static_cast<std::uint64_t>(std::max(0LL, value));
  }
  return py.from_number(called(values));
}

}  // namespace

void* function_of(NumberFunction function) {
  static const Method kMethod{"steady_step", call, kFastCall, nullptr};
  const auto& py = interpreter();
  if (!py.complete) return nullptr;
  called = function;
  return py.new_function(&kMethod, nullptr, nullptr);
}

}  // namespace fullwatt::vendor::python
