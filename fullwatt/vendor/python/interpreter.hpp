#pragma once

#include <dlfcn.h>

namespace fullwatt::vendor::python {

using Object = void;  // PyObject; Python's headers are not needed for it

/// Looks a function of the interpreter's C interface up in this process; false where there is none of that name.
template <class Function>
bool find(Function& function, const char* name) {
  function = reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, name));
  return function != nullptr;
}

}  // namespace fullwatt::vendor::python
