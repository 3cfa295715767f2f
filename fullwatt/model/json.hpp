#pragma once

#include <cmath>
#include <concepts>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "fullwatt/base/error.hpp"
#include "fullwatt/base/reading.hpp"

/// Structs to JSON and back by their own `fields` list: one list per struct serves both directions.
namespace fullwatt::model {

using Json = nlohmann::ordered_json;

namespace json_detail {

/// Thrown while decoding; `decode` turns it into an Error that names the place.
struct Mismatch : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class T>
concept Record = requires(T& value) { T::fields(value, [](const char*, auto&) {}); };

template <class T>
concept Enumeration = std::is_enum_v<T>;

template <class T>
struct Codec;

template <class T>
Json encode(const T& value) {
  return Codec<T>::encode(value);
}

template <class T>
T decode(const Json& json, const std::string& at) {
  return Codec<T>::decode(json, at);
}

[[noreturn]] inline void mismatch(const std::string& at, std::string_view expected, const Json& got) {
  throw Mismatch((at.empty() ? std::string("the document") : at) + ": expected " + std::string(expected) + ", found " +
                 got.type_name());
}

template <>
struct Codec<bool> {
  static Json encode(bool value) { return value; }
  static bool decode(const Json& json, const std::string& at) {
    if (!json.is_boolean()) mismatch(at, "true or false", json);
    return json.get<bool>();
  }
};

template <std::integral T>
  requires(!std::same_as<T, bool>)
struct Codec<T> {
  static Json encode(T value) { return value; }
  static T decode(const Json& json, const std::string& at) {
    if (json.is_number_unsigned()) {
      const auto value = json.get<std::uint64_t>();
      if (value <= static_cast<std::uint64_t>(std::numeric_limits<T>::max())) return static_cast<T>(value);
    } else if (json.is_number_integer()) {
      const auto value = json.get<std::int64_t>();
      if (std::in_range<T>(value)) return static_cast<T>(value);
    } else {
      mismatch(at, "a whole number", json);
    }
    throw Mismatch(at + ": the number " + json.dump() + " is out of range");
  }
};

template <>
struct Codec<double> {
  static Json encode(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }
  static double decode(const Json& json, const std::string& at) {
    if (!json.is_number()) mismatch(at, "a number", json);
    return json.get<double>();
  }
};

template <>
struct Codec<std::string> {
  static Json encode(const std::string& value) { return value; }
  static std::string decode(const Json& json, const std::string& at) {
    if (!json.is_string()) mismatch(at, "text", json);
    return json.get<std::string>();
  }
};

template <class T>
struct Codec<std::vector<T>> {
  static Json encode(const std::vector<T>& values) {
    auto json = Json::array();
    for (const auto& value : values) json.push_back(json_detail::encode(value));
    return json;
  }
  static std::vector<T> decode(const Json& json, const std::string& at) {
    if (!json.is_array()) mismatch(at, "a list", json);
    std::vector<T> values;
    values.reserve(json.size());
    for (std::size_t i = 0; i < json.size(); ++i) {
      values.push_back(json_detail::decode<T>(json[i], at + "[" + std::to_string(i) + "]"));
    }
    return values;
  }
};

template <class T>
struct Codec<std::map<std::string, T>> {
  static Json encode(const std::map<std::string, T>& values) {
    auto json = Json::object();
    for (const auto& [name, value] : values) json[name] = json_detail::encode(value);
    return json;
  }
  static std::map<std::string, T> decode(const Json& json, const std::string& at) {
    if (!json.is_object()) mismatch(at, "a mapping", json);
    std::map<std::string, T> values;
    for (const auto& [name, value] : json.items()) values[name] = json_detail::decode<T>(value, at + "." + name);
    return values;
  }
};

template <class T>
struct Codec<std::optional<T>> {
  static Json encode(const std::optional<T>& value) { return value ? json_detail::encode(*value) : Json(nullptr); }
  static std::optional<T> decode(const Json& json, const std::string& at) {
    if (json.is_null()) return std::nullopt;
    return json_detail::decode<T>(json, at);
  }
};

/// A present value is written as itself, an absent one as {"absent": reason, "code": …, "detail": …}.
template <class T>
struct Codec<base::Reading<T>> {
  static Json encode(const base::Reading<T>& reading) {
    if (reading) return json_detail::encode(*reading);
    Json json{{"absent", base::to_string(reading.error().reason)}};
    if (reading.error().code != 0) json["code"] = reading.error().code;
    if (!reading.error().detail.empty()) json["detail"] = reading.error().detail;
    return json;
  }
  static base::Reading<T> decode(const Json& json, const std::string& at) {
    if (!json.is_object() || !json.contains("absent")) return json_detail::decode<T>(json, at);
    base::Absence absence;
    absence.reason = base::absent_from_string(json_detail::decode<std::string>(json["absent"], at + ".absent"));
    if (json.contains("code")) absence.code = json_detail::decode<int>(json["code"], at + ".code");
    if (json.contains("detail")) absence.detail = json_detail::decode<std::string>(json["detail"], at + ".detail");
    return absence;
  }
};

/// Enumerations are written by their names; they are only read where they have a `<name>_from_string`.
template <Enumeration T>
struct Codec<T> {
  static Json encode(T value) { return to_string(value); }
};

template <Record T>
struct Codec<T> {
  static Json encode(const T& value) {
    auto json = Json::object();
    T::fields(value, [&](const char* name, const auto& field) { json[name] = json_detail::encode(field); });
    return json;
  }
  static T decode(const Json& json, const std::string& at) {
    if (!json.is_object()) mismatch(at, "a mapping", json);
    T value;
    std::set<std::string> known;
    T::fields(value, [&](const char* name, auto& field) {
      known.insert(name);
      if (const auto found = json.find(name); found != json.end()) {
        field = json_detail::decode<std::remove_cvref_t<decltype(field)>>(*found, at.empty() ? name : at + "." + name);
      }
    });
    for (const auto& [name, unused] : json.items()) {
      if (!known.contains(name)) throw Mismatch((at.empty() ? name : at + "." + name) + ": no such field");
    }
    return value;
  }
};

}  // namespace json_detail

template <class T>
Json to_json(const T& value) {
  return json_detail::encode(value);
}

template <class T>
base::Result<T> from_json(const Json& json, const std::string& at = {}) {
  try {
    return json_detail::decode<T>(json, at);
  } catch (const json_detail::Mismatch& wrong) {
    return base::fail(base::Error::Kind::bad_input, wrong.what());
  }
}

/// JSON text that is valid whatever bytes the machine gave us: broken UTF-8 is replaced.
inline std::string dump(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace fullwatt::model
