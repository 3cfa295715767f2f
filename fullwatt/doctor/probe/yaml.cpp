#include "fullwatt/doctor/probe/yaml.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include <yaml-cpp/yaml.h>

#include "fullwatt/base/text.hpp"

namespace fullwatt::doctor {
namespace {

using model::Json;

constexpr std::size_t kMaxBytes = 32UL * 1024 * 1024;
constexpr std::size_t kMaxNodes = 1'000'000;
/// Mappings keep their order and are searched from the front: more keys than this would take minutes.
constexpr std::size_t kMaxKeys = 20'000;
constexpr int kMaxDepth = 48;

struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A plain scalar's meaning in YAML's core schema; quoted scalars are always text.
Json typed_scalar(const YAML::Node& node) {
  const auto& text = node.Scalar();
  if (node.Tag() == "!") return text;
  if (text == "true") return true;
  if (text == "false") return false;
  if (text == "null" || text == "~" || text.empty()) return nullptr;
  if (const auto whole = base::number<std::int64_t>(text)) return *whole;
  if (const auto large = base::number<std::uint64_t>(text)) return *large;
  if (text.starts_with("0x")) {
    if (const auto hex = base::number<std::uint64_t>(text, 16)) return *hex;
  }
  double real = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), real);
  // std::from_chars takes "nan" and "inf", which here are names.
  if (error == std::errc{} && end == text.data() + text.size() && std::isfinite(real)) return real;
  return text;
}

Json text_scalar(const YAML::Node& node) {
  const auto& text = node.Scalar();
  if (node.Tag() != "!" && (text == "null" || text == "~")) return nullptr;
  return text;
}

class Converter {
 public:
  Json convert(const YAML::Node& node, int depth, bool text_only) {
    if (depth > kMaxDepth) throw Refused("nested too deeply");
    if (++nodes_ > kMaxNodes) throw Refused("too many values (aliases that multiply?)");
    switch (node.Type()) {
      case YAML::NodeType::Scalar:
        return text_only ? text_scalar(node) : typed_scalar(node);
      case YAML::NodeType::Sequence:
        return sequence(node, depth, text_only);
      case YAML::NodeType::Map:
        return mapping(node, depth, text_only);
      default:
        return nullptr;
    }
  }

 private:
  Json sequence(const YAML::Node& node, int depth, bool text_only) {
    auto json = Json::array();
    for (const auto& item : node) json.push_back(convert(item, depth + 1, text_only));
    return json;
  }

  Json mapping(const YAML::Node& node, int depth, bool text_only) {
    auto json = Json::object();
    if (node.size() > kMaxKeys) throw Refused("a mapping with more than 20,000 keys");
    for (const auto& item : node) {
      if (!item.first.IsScalar()) throw Refused("a key that is not a plain name");
      const auto& key = item.first.Scalar();
      if (json.contains(key)) throw Refused("the key '" + base::printable(key, 80) + "' stands twice");
      const bool below_text = depth == 0 && (key == "files" || key == "environment");
      json[key] = convert(item.second, depth + 1, text_only || below_text);
    }
    return json;
  }

  std::size_t nodes_ = 0;
};

bool is_short(const Json& json) {
  return !json.is_structured() || json.empty() ||
         (json.is_array() && json.size() <= 16 &&
          std::ranges::none_of(json, [](const Json& item) { return item.is_structured() || item.is_string(); }));
}

void emit(YAML::Emitter& out, const Json& json) {
  if (json.is_object()) {
    out << (json.empty() ? YAML::Flow : YAML::Block) << YAML::BeginMap;
    for (const auto& [key, value] : json.items()) {
      out << YAML::Key << key << YAML::Value;
      emit(out, value);
    }
    out << YAML::EndMap;
  } else if (json.is_array()) {
    out << (is_short(json) ? YAML::Flow : YAML::Block) << YAML::BeginSeq;
    for (const auto& item : json) emit(out, item);
    out << YAML::EndSeq;
  } else if (json.is_string()) {
    out << YAML::DoubleQuoted << json.get<std::string>();
  } else if (json.is_null()) {
    out << YAML::Null;
  } else {
    out << model::dump(json);
  }
}

}  // namespace

base::Result<Json> yaml_to_json(const std::string& text) {
  const auto bad = [](const std::string& why) {
    return base::fail(base::Error::Kind::bad_input, "this is not a readable machine: " + why,
                      "A saved machine is written by 'fullwatt doctor --save DIR'.");
  };
  if (text.size() > kMaxBytes) return bad("larger than 32 MiB");
  if (text.find('\0') != std::string::npos) return bad("it holds NUL bytes");
  try {
    return Converter().convert(YAML::Load(text), 0, false);
  } catch (const std::exception& error) {
    return bad(base::printable(error.what(), 200));
  }
}

std::string json_to_yaml(const Json& json) {
  YAML::Emitter out;
  emit(out, json);
  return std::string(out.c_str()) + "\n";
}

}  // namespace fullwatt::doctor
