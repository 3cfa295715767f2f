#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "fullwatt/vendor/python/interpreter.hpp"

/// Python functions written in C++. Everything here is to be called with the interpreter's lock held.
namespace fullwatt::vendor::python {

/// The arguments of a call, as the interpreter passes them: by position, then those that `names` (a tuple) names.
struct Arguments {
  Object* const* values;
  std::ptrdiff_t count;
  Object* names;
};

/// Whether the interpreter has everything that is needed here; without it nothing else may be used.
bool functions_known();

/// An object that is kept alive.
class Kept {
 public:
  explicit Kept(Object* object);
  ~Kept();
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;

  Object* get() const { return object_; }

 private:
  Object* object_;
};

/// What a function does. It gives a new reference, or null after something was raised.
class Body {
 public:
  Body() = default;
  Body(const Body&) = delete;
  Body& operator=(const Body&) = delete;
  virtual ~Body() = default;

  virtual Object* call(const Arguments& arguments) = 0;
};

enum class Binding { none, method };  ///< whether it is given the object when it is the attribute of a class

/// A new Python function.
Object* function_of(std::unique_ptr<Body> body, Binding binding);

/// Calls a Python function.
Object* call(Object* function, const Arguments& arguments);
Object* call(Object* function, std::uint32_t number);

/// A new reference to None.
Object* none();
/// Whether it is a tuple of that many, and a dictionary of that many.
bool is_tuple_of(Object* object, std::ptrdiff_t count);
bool is_dict_of(Object* object, std::ptrdiff_t count);

/// Calls something while an exception is on its way, which goes on afterwards.
void call_while_raising(Object* function, const Arguments& arguments);
bool raises_stop_iteration();

}  // namespace fullwatt::vendor::python
