#include "fullwatt/explain/config_file.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <utility>

#include <yaml-cpp/yaml.h>

#include "fullwatt/base/text.hpp"

namespace fullwatt::explain {
namespace {

constexpr int kDeepest = 32;
constexpr std::size_t kMostValues = 5000;
/// Aliases can make a small file stand for a huge one.
constexpr std::size_t kMostNodes = 50'000;

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, text) != names.end();
}

/// The type that PyYAML gives a plain scalar. It follows YAML 1.1: yes and off are booleans, and 1e-4 is text.
std::string plain_type(const std::string& value) {
  const auto low = base::lower(value);
  if (low.empty() || is_one_of(low, {"null", "none", "~"})) return low == "none" ? "str" : "NoneType";
  if (is_one_of(low, {"true", "false", "yes", "no", "on", "off"})) return "bool";
  if (base::number<long long>(value)) return "int";
  const bool has_point = value.find('.') != std::string::npos;
  return real_number(value) && has_point ? "float" : "str";
}

class YamlReader {
 public:
  std::vector<ConfigValue> read(const std::string& text) {
    // A JSON document is a YAML document too; its line numbers come with it.
    for (const auto& document : YAML::LoadAll(text)) visit(document, {}, 0);
    return std::move(values_);
  }

 private:
  void visit(const YAML::Node& node, const std::string& path, int depth) {
    if (depth > kDeepest || !node.IsMap() || ++nodes_ > kMostNodes) return;
    for (const auto& item : node) {
      if (!item.first.IsScalar() || values_.size() >= kMostValues) continue;
      const auto& name = item.first.Scalar();
      const auto inner = path.empty() ? name : path + "." + name;
      if (item.second.IsScalar() || item.second.IsNull()) {
        scalar(item.first, item.second, inner);
      } else if (item.second.IsMap()) {
        visit(item.second, inner, depth + 1);
      } else if (item.second.IsSequence()) {
        for (const auto& element : item.second)
          visit(element, inner, depth + 1);  // settings of a list's mappings count too
      }
    }
  }
  void scalar(const YAML::Node& key, const YAML::Node& value, const std::string& path) {
    const auto text = value.IsNull() ? std::string("null") : value.Scalar();
    // "!" marks a quoted scalar, "?" a plain one.
    const auto type = value.IsScalar() && value.Tag() == "!" ? std::string("str") : plain_type(text);
    values_.push_back({base::lower(key.Scalar()), path, text, type, key.Mark().line + 1});
  }

  std::vector<ConfigValue> values_;
  std::size_t nodes_ = 0;
};

std::string_view without_comment(std::string_view line) {
  char quote = '\0';
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote != '\0') {
      if (c == quote) quote = '\0';
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '#' || (c == ';' && (i == 0 || line[i - 1] == ' '))) {
      return line.substr(0, i);
    }
  }
  return line;
}

ConfigValue from_pair(std::string_view key, std::string_view value, const std::string& section, bool typed, int line) {
  const bool quoted =
      value.size() >= 2 && (value.front() == '"' || value.front() == '\'') && value.back() == value.front();
  const std::string text(quoted ? value.substr(1, value.size() - 2) : value);
  const auto name = std::string(key.substr(key.rfind('.') == std::string_view::npos ? 0 : key.rfind('.') + 1));
  const auto path = section.empty() ? std::string(key) : section + "." + std::string(key);
  return {base::lower(name), path, text, !typed || quoted ? "str" : plain_type(text), line};
}

/// `key = value` lines under `[section]` headings: TOML without its multi-line values, and INI, where all is text.
std::vector<ConfigValue> read_pairs(const std::string& text, bool typed) {
  std::vector<ConfigValue> values;
  std::string section;
  int number = 0;
  const auto all = base::lines(text);
  for (const auto raw : all) {
    ++number;
    const auto line = base::trim(without_comment(raw));
    if (line.size() > 2 && line.front() == '[' && line.back() == ']') {
      section = std::string(base::trim(line.substr(1, line.size() - 2)));
      continue;
    }
    const auto equals = line.find('=');
    const auto colon = typed ? std::string_view::npos : line.find(':');
    const auto at = std::min(equals, colon);
    if (at == std::string_view::npos || at == 0 || values.size() >= kMostValues) continue;
    values.push_back(
        from_pair(base::trim(line.substr(0, at)), base::trim(line.substr(at + 1)), section, typed, number));
  }
  return values;
}

}  // namespace

std::optional<double> real_number(std::string_view text) {
  text = base::trim(text);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::vector<ConfigValue> read_config(std::string_view path, const std::string& text) {
  const auto name = base::lower(base::file_name(path));
  if (name.ends_with(".toml")) return read_pairs(text, true);
  if (name.ends_with(".ini") || name.ends_with(".cfg") || name.ends_with(".conf")) return read_pairs(text, false);
  try {
    return YamlReader().read(text);
  } catch (const YAML::Exception&) {
    return {};
  }
}

}  // namespace fullwatt::explain
