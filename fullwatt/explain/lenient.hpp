#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "fullwatt/model/run.hpp"

/// Reading JSON from outside: what is missing or of a wrong type is nothing, never an error.
namespace fullwatt::explain::lenient {

using Json = nlohmann::json;

/// The member; null when there is none.
const Json& at(const Json& object, const char* name);

std::string text(const Json& object, const char* name);
std::optional<double> number(const Json& object, const char* name);
std::optional<bool> flag(const Json& object, const char* name);
std::vector<double> numbers(const Json& object, const char* name);
std::vector<std::string> texts(const Json& object, const char* name);
std::map<std::string, double> counts(const Json& object, const char* name);
/// Every member as text: booleans as true and false, null as none, numbers and lists as JSON writes them.
std::map<std::string, std::string> values(const Json& object, const char* name);
model::Site site(const Json& object, const char* name);

/// A whole number that fits; nothing for fractions, negative values of unsigned types, and what is too large.
template <class T>
std::optional<T> integer(const Json& object, const char* name) {
  const auto value = number(object, name);
  if (!value || *value < static_cast<double>(std::numeric_limits<T>::min())) return std::nullopt;
  if (*value >= static_cast<double>(std::numeric_limits<T>::max()) ||
      *value != static_cast<double>(static_cast<T>(*value))) {
    return std::nullopt;
  }
  return static_cast<T>(*value);
}

}  // namespace fullwatt::explain::lenient
