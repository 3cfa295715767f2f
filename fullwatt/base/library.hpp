#pragma once

#include <string>

#include "fullwatt/base/error.hpp"

namespace fullwatt::base {

/// A shared library loaded at run time; closed when the last copy goes. Vendor libraries are never linked.
class Library {
 public:
  static Result<Library> load(const std::string& name);

  Library(Library&& other) noexcept;
  Library& operator=(Library&& other) noexcept;
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library();

  /// The address of a symbol, null when the library is too old to have it.
  template <class Function>
  Function* find(const char* symbol) const {
    return reinterpret_cast<Function*>(address(symbol));
  }
  /// The file the loader really took, with links resolved; empty when that cannot be told.
  std::string path_of(const char* symbol) const;

 private:
  explicit Library(void* handle) : handle_(handle) {}
  void* address(const char* symbol) const;

  void* handle_ = nullptr;
};

}  // namespace fullwatt::base
