#include "fullwatt/vendor/python/function.hpp"

#include <array>
#include <utility>

namespace fullwatt::vendor::python {
namespace {

/// PyMethodDef, the same since Python 3.7.
struct Method {
  const char* name;
  Object* (*call)(Object* self, Object* const* values, std::ptrdiff_t count, Object* names);
  int flags;
  const char* documentation;
};
constexpr int kFastCallWithKeywords = 0x0080 | 0x0002;  // METH_FASTCALL | METH_KEYWORDS

struct Python {
  Object* (*new_function)(const Method*, Object* self, Object* module) = nullptr;
  Object* (*new_method)(Object* function) = nullptr;
  Object* (*new_capsule)(void*, const char* name, void (*destructor)(Object*)) = nullptr;
  void* (*in_capsule)(Object*, const char* name) = nullptr;
  void (*increase)(Object*) = nullptr;
  void (*decrease)(Object*) = nullptr;
  Object* (*number)(unsigned long) = nullptr;
  Object* (*new_tuple)(std::ptrdiff_t) = nullptr;
  int (*set_in_tuple)(Object*, std::ptrdiff_t, Object*) = nullptr;
  Object* (*in_tuple)(Object*, std::ptrdiff_t) = nullptr;
  std::ptrdiff_t (*tuple_size)(Object*) = nullptr;
  Object* (*new_dict)() = nullptr;
  int (*set_in_dict)(Object*, Object* key, Object* value) = nullptr;
  std::ptrdiff_t (*dict_size)(Object*) = nullptr;
  Object* (*call)(Object*, Object* arguments, Object* keywords) = nullptr;
  int (*raises)(Object* kind) = nullptr;
  void (*fetch)(Object**, Object**, Object**) = nullptr;
  void (*restore)(Object*, Object*, Object*) = nullptr;
  void (*clear)() = nullptr;
  Object** stop_iteration = nullptr;
  Object* none = nullptr;

  bool complete =
      find(new_function, "PyCFunction_NewEx") && find(new_method, "PyInstanceMethod_New") &&
      find(new_capsule, "PyCapsule_New") && find(in_capsule, "PyCapsule_GetPointer") && find(increase, "Py_IncRef") &&
      find(decrease, "Py_DecRef") && find(number, "PyLong_FromUnsignedLong") && find(new_tuple, "PyTuple_New") &&
      find(set_in_tuple, "PyTuple_SetItem") && find(in_tuple, "PyTuple_GetItem") && find(tuple_size, "PyTuple_Size") &&
      find(new_dict, "PyDict_New") && find(set_in_dict, "PyDict_SetItem") && find(dict_size, "PyDict_Size") &&
      find(call, "PyObject_Call") && find(raises, "PyErr_ExceptionMatches") && find(fetch, "PyErr_Fetch") &&
      find(restore, "PyErr_Restore") && find(clear, "PyErr_Clear") && find(stop_iteration, "PyExc_StopIteration") &&
      find(none, "_Py_NoneStruct");

  /// Python 3.11 and newer; before, a call needs a tuple and a dictionary.
  Object* (*vector_call)(Object*, Object* const* values, std::size_t count, Object* names) = nullptr;
  bool has_vector_call = find(vector_call, "PyObject_Vectorcall");
};

const Python& interpreter() {
  static const Python kFound;
  return kFound;
}

/// The arguments by position as a tuple, those by name as a dictionary or null.
std::pair<Object*, Object*> packed(const Python& py, const Arguments& arguments) {
  Object* positions = py.new_tuple(arguments.count);
  for (std::ptrdiff_t i = 0; i < arguments.count; ++i) {
    py.increase(arguments.values[i]);
    py.set_in_tuple(positions, i, arguments.values[i]);  // takes the reference
  }
  if (arguments.names == nullptr) return {positions, nullptr};
  Object* keywords = py.new_dict();
  for (std::ptrdiff_t i = 0; i < py.tuple_size(arguments.names); ++i)
    py.set_in_dict(keywords, py.in_tuple(arguments.names, i), arguments.values[arguments.count + i]);
  return {positions, keywords};
}

Object* call_body(Object* self, Object* const* values, std::ptrdiff_t count, Object* names) {
  return static_cast<Body*>(interpreter().in_capsule(self, nullptr))->call({values, count, names});
}

void delete_body(Object* capsule) {
  delete static_cast<Body*>(interpreter().in_capsule(capsule, nullptr));
}

constexpr Method kMethod{"fullwatt_hook", call_body, kFastCallWithKeywords, nullptr};

}  // namespace

bool functions_known() {
  return interpreter().complete;
}

Kept::Kept(Object* object) : object_(object) {
  interpreter().increase(object_);
}

Kept::~Kept() {
  interpreter().decrease(object_);
}

Object* function_of(std::unique_ptr<Body> body, Binding binding) {
  const auto& py = interpreter();
  Object* capsule = py.new_capsule(body.release(), nullptr, delete_body);
  Object* function = py.new_function(&kMethod, capsule, nullptr);
  py.decrease(capsule);  // the function keeps it
  if (binding == Binding::none) return function;
  Object* method = py.new_method(function);
  py.decrease(function);
  return method;
}

Object* call(Object* function, const Arguments& arguments) {
  const auto& py = interpreter();
  if (py.has_vector_call)
    return py.vector_call(function, arguments.values, static_cast<std::size_t>(arguments.count), arguments.names);
  const auto [positions, keywords] = packed(py, arguments);
  Object* result = py.call(function, positions, keywords);
  py.decrease(positions);
  if (keywords != nullptr) py.decrease(keywords);
  return result;
}

Object* call(Object* function, std::uint32_t number) {
  const auto& py = interpreter();
  const std::array<Object*, 1> values{py.number(number)};
  Object* result = call(function, {values.data(), 1, nullptr});
  py.decrease(values[0]);
  return result;
}

Object* none() {
  const auto& py = interpreter();
  py.increase(py.none);
  return py.none;
}

bool is_tuple_of(Object* object, std::ptrdiff_t count) {
  const auto size = interpreter().tuple_size(object);
  if (size < 0) interpreter().clear();  // no tuple
  return size == count;
}

bool is_dict_of(Object* object, std::ptrdiff_t count) {
  const auto size = interpreter().dict_size(object);
  if (size < 0) interpreter().clear();
  return size == count;
}

void call_while_raising(Object* function, const Arguments& arguments) {
  const auto& py = interpreter();
  std::array<Object*, 3> raised{};
  py.fetch(&raised[0], &raised[1], &raised[2]);
  Object* result = call(function, arguments);
  if (result != nullptr) py.decrease(result);
  py.restore(raised[0], raised[1], raised[2]);
}

bool raises_stop_iteration() {
  return interpreter().raises(*interpreter().stop_iteration) != 0;
}

}  // namespace fullwatt::vendor::python
