#include "fullwatt/explain/lenient.hpp"

#include <cmath>

namespace fullwatt::explain::lenient {
namespace {

std::string as_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return "none";
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

const Json& at(const Json& object, const char* name) {
  static const Json kNothing;
  if (!object.is_object()) return kNothing;
  const auto found = object.find(name);
  return found == object.end() ? kNothing : *found;
}

std::string text(const Json& object, const char* name) {
  const auto& value = at(object, name);
  return value.is_string() ? value.get<std::string>() : std::string{};
}

std::optional<double> number(const Json& object, const char* name) {
  const auto& value = at(object, name);
  if (!value.is_number()) return std::nullopt;
  const auto read = value.get<double>();
  return std::isfinite(read) ? std::optional(read) : std::nullopt;
}

std::optional<bool> flag(const Json& object, const char* name) {
  const auto& value = at(object, name);
  return value.is_boolean() ? std::optional(value.get<bool>()) : std::nullopt;
}

std::vector<double> numbers(const Json& object, const char* name) {
  std::vector<double> read;
  const auto& list = at(object, name);
  if (!list.is_array()) return read;
  for (const auto& value : list) {
    if (value.is_number()) read.push_back(value.get<double>());
  }
  return read;
}

std::vector<std::string> texts(const Json& object, const char* name) {
  std::vector<std::string> read;
  const auto& list = at(object, name);
  if (!list.is_array()) return read;
  for (const auto& value : list) {
    if (!value.is_null()) read.push_back(as_text(value));
  }
  return read;
}

std::map<std::string, double> counts(const Json& object, const char* name) {
  std::map<std::string, double> read;
  const auto& members = at(object, name);
  if (!members.is_object()) return read;
  for (const auto& [key, value] : members.items()) {
    if (value.is_number()) read[key] = value.get<double>();
  }
  return read;
}

std::map<std::string, std::string> values(const Json& object, const char* name) {
  std::map<std::string, std::string> read;
  const auto& members = at(object, name);
  if (!members.is_object()) return read;
  for (const auto& [key, value] : members.items()) read[key] = as_text(value);
  return read;
}

model::Site site(const Json& object, const char* name) {
  const auto& place = at(object, name);
  return {text(place, "file"), integer<int>(place, "line").value_or(0), text(place, "function")};
}

}  // namespace fullwatt::explain::lenient
