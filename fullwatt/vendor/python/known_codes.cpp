#include "fullwatt/vendor/python/known_codes.hpp"

#include <algorithm>
#include <iterator>
#include <vector>

#include "fullwatt/vendor/python/stack.hpp"

namespace fullwatt::vendor::python {
namespace {

struct Python {
  int (*lock)() = nullptr;
  void (*unlock)(int) = nullptr;
  std::ptrdiff_t (*size)(Object*) = nullptr;
  Object* (*item)(Object*, std::ptrdiff_t) = nullptr;
  Object* (*from_int)(long) = nullptr;
  Object* (*new_tuple)(std::ptrdiff_t) = nullptr;
  int (*set_item)(Object*, std::ptrdiff_t, Object*) = nullptr;
  void (*take)(Object*) = nullptr;
  void (*drop)(Object*) = nullptr;

  bool complete = find(lock, "PyGILState_Ensure") && find(unlock, "PyGILState_Release") && find(size, "PyTuple_Size") &&
                  find(item, "PyTuple_GetItem") && find(from_int, "PyLong_FromLong") &&
                  find(new_tuple, "PyTuple_New") && find(set_item, "PyTuple_SetItem") && find(take, "Py_IncRef") &&
                  find(drop, "Py_DecRef");
};

const Python& interpreter() {
  static const Python kFound;
  return kFound;
}

}  // namespace

void KnownCodes::learn(unsigned long thread) {
  const auto& py = interpreter();
  if (!py.complete || known_.size() >= kMost) return;
  const auto state = py.lock();
  auto* stack = stack_of(thread);
  for (std::ptrdiff_t i = 0; stack != nullptr && i < py.size(stack); i += 2) {
    keep(py.item(stack, i));
  }
  if (stack != nullptr) py.drop(stack);
  py.unlock(state);
}

void KnownCodes::keep(Object* code) {
  if (known_.try_emplace(reinterpret_cast<std::uintptr_t>(code), code).second) interpreter().take(code);
}

bool KnownCodes::has_all(std::span<const Place> places) const {
  return std::ranges::all_of(places, [&](const Place& place) {
    const auto misses = misses_.find(place.code);
    return known_.contains(place.code) || (misses != misses_.end() && misses->second >= kMostMisses);
  });
}

void KnownCodes::missed(std::span<const Place> places) {
  for (const auto& place : places) {
    if (!known_.contains(place.code)) ++misses_[place.code];
  }
}

Object* KnownCodes::tuple_of(std::span<const Place> places) const {
  const auto& py = interpreter();
  std::vector<Place> known;
  std::ranges::copy_if(places, std::back_inserter(known),
                       [&](const auto& place) { return known_.contains(place.code); });
  auto* tuple = py.new_tuple(static_cast<std::ptrdiff_t>(2 * known.size()));
  for (std::size_t i = 0; tuple != nullptr && i < known.size(); ++i) {
    auto* code = known_.at(known[i].code);
    py.take(code);
    const auto at = static_cast<std::ptrdiff_t>(2 * i);
    py.set_item(tuple, at, code);
    py.set_item(tuple, at + 1, py.from_int(known[i].instruction));
  }
  return tuple;
}

}  // namespace fullwatt::vendor::python
