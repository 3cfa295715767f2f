#include "fullwatt/base/library.hpp"

#include <cstdlib>
#include <memory>
#include <utility>

#include <dlfcn.h>

namespace fullwatt::base {

Result<Library> Library::load(const std::string& name) {
  void* handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = ::dlerror();
    return fail(Error::Kind::not_found, why != nullptr ? why : "cannot load " + name);
  }
  return Library(handle);
}

Library::Library(Library&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}

Library& Library::operator=(Library&& other) noexcept {
  std::swap(handle_, other.handle_);
  return *this;
}

Library::~Library() {
  if (handle_ != nullptr) ::dlclose(handle_);
}

void* Library::address(const char* symbol) const {
  return ::dlsym(handle_, symbol);
}

std::string Library::path_of(const char* symbol) const {
  Dl_info found{};
  void* at = address(symbol);
  if (at == nullptr || ::dladdr(at, &found) == 0 || found.dli_fname == nullptr) return {};
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(found.dli_fname, nullptr), &std::free);
  return real ? real.get() : found.dli_fname;
}

}  // namespace fullwatt::base
