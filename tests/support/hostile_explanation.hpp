#pragma once

#include <concepts>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fullwatt/model/explanation.hpp"

/// An explanation in which every text is hostile, whatever fields it has or will have.
namespace fullwatt::tests {

/// A program that calls itself everything that could hurt a reader.
inline const std::string kHostile =
    "\x1b[31m\x1b]0;t\a\r\n<script>alert(1)</script>`id`|$(id)&\"'\\\u202E\xff**_[x](http://y) --> ]]>";

enum class Poison { everything, but_ids };

namespace poison_detail {

inline bool is_id(std::string_view name) {
  return name == "id" || name == "lane" || name == "kind" || name == "verdict" || name == "consequence_of";
}

template <class T>
void spoil(T& value, Poison poison, std::string_view name);

template <class T>
void spoil_all(std::vector<T>& values, Poison poison, std::string_view name) {
  for (auto& value : values) spoil(value, poison, name);
}

template <class T>
void spoil(T& value, Poison poison, std::string_view name) {
  if constexpr (std::same_as<T, std::string>) {
    if (poison == Poison::everything || !is_id(name)) value = kHostile;
  } else if constexpr (std::same_as<T, std::map<std::string, std::string>>) {
    for (auto& [key, text] : value) text = kHostile;
    value[kHostile] = kHostile;
  } else if constexpr (requires { value.push_back(value.front()); }) {
    spoil_all(value, poison, name);
  } else if constexpr (requires { T::fields(value, [](const char*, auto&) {}); }) {
    T::fields(value, [&](const char* field, auto& inner) { spoil(inner, poison, field); });
  }
}

}  // namespace poison_detail

inline model::Explanation poisoned(model::Explanation explanation, Poison poison) {
  poison_detail::spoil(explanation, poison, "");
  return explanation;
}

}  // namespace fullwatt::tests
