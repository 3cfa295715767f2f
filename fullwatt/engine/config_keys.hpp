#pragma once

#include <functional>

#include "fullwatt/engine/config.hpp"

/// The settings of a configuration one by one: how each is read from a text, and told. Private to the reading of files.
namespace fullwatt::engine {

constexpr const char* kDescribed = "docs/train.md describes every setting.";

/// Thrown while a configuration is read; becomes an Error. `place` is a line of the file, or an override.
struct Wrong {
  std::string place;
  std::string what;
  std::string remedy = kDescribed;
};

/// A text of the user's, for messages.
std::string shown(std::string_view text);

/// A value with the place where it stands.
struct Value {
  std::string text;
  std::string place;

  [[noreturn]] void refuse(const std::string& what) const { throw Wrong{place, what + ", not " + shown(text)}; }
};

std::int64_t whole_number(const Value& value, std::int64_t least, std::int64_t most);

/// One key of the file: how it is read, and how it is told.
struct Key {
  std::string_view section;
  std::string_view name;
  std::function<void(Config&, const Value&)> read;
  std::function<std::string(const Config&)> tell;
  bool takes_list = false;
};

/// All of them, in the order of the file.
const std::vector<Key>& keys();
/// Refuses what there is not, with the nearest that there is.
const Key& find_key(const std::string& section, const std::string& name, const std::string& place);

}  // namespace fullwatt::engine
