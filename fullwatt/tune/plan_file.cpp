#include "fullwatt/tune/plan_file.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <set>

#include "catalog/fixes.hpp"
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <yaml-cpp/yaml.h>

#include "fullwatt/base/text.hpp"

namespace fullwatt::tune {
namespace {

using catalog::FixSetting;
constexpr std::size_t kMostBytes = 1 << 20;
constexpr int kLongestComment = 400;
constexpr const char* kRemedy = "'fullwatt explain fixes' lists the fixes and their settings.";

/// Thrown while a plan is read; becomes an Error.
struct Wrong {
  int line;
  std::string what;
};

int line_of(const YAML::Node& node) {
  return node.Mark().line + 1;
}

[[noreturn]] void wrong(const YAML::Node& node, std::string what) {
  throw Wrong{line_of(node), std::move(what)};
}

std::string meant(std::string_view near) {
  return near.empty() ? std::string() : fmt::format("; did you mean '{}'?", near);
}

std::string shown(const std::string& text) {
  return "'" + base::printable(text, 60) + "'";
}

const std::string& scalar(const YAML::Node& node, std::string_view what) {
  if (!node.IsScalar()) wrong(node, fmt::format("{} must be a single value", what));
  return node.Scalar();
}

void check_keys(const YAML::Node& map, const std::vector<std::string_view>& known) {
  std::set<std::string> seen;
  for (const auto& item : map) {
    const auto& key = scalar(item.first, "a key");
    if (std::ranges::find(known, key) == known.end())
      wrong(item.first, "unknown key " + shown(key) + meant(base::nearest(key, known)));
    if (!seen.insert(key).second) wrong(item.first, "the key " + shown(key) + " stands twice");
  }
}

void check_value(const YAML::Node& node, const FixSetting& setting) {
  const auto& value = scalar(node, setting.name);
  const auto count = base::number<int>(value);
  if (setting.kind == FixSetting::Kind::count && (!count || *count < 0 || *count > 4096))
    wrong(node, fmt::format("{} must be a whole number from 0 to 4096, not {}", setting.name, shown(value)));
  if (setting.kind == FixSetting::Kind::flag && value != "true" && value != "false")
    wrong(node, fmt::format("{} must be true or false, not {}", setting.name, shown(value)));
}

std::optional<double> speedup_of(const YAML::Node& node) {
  if (!node) return std::nullopt;
  double value = 0;
  const auto& text = scalar(node, "speedup");
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !(value > 0))
    wrong(node, "speedup must be a number above 0, not " + shown(text));
  return value;
}

model::PlannedFix fix_of(const YAML::Node& node) {
  if (!node.IsMap() || !node["id"]) wrong(node, "a fix needs an 'id'");
  model::PlannedFix planned;
  planned.id = scalar(node["id"], "id");
  const auto* fix = catalog::find_fix(planned.id);
  if (fix == nullptr) wrong(node["id"], "unknown fix " + shown(planned.id) + meant(catalog::nearest_fix(planned.id)));
  std::vector<std::string_view> known{"id", "speedup"};
  for (const auto& setting : fix->settings) known.push_back(setting.name);
  check_keys(node, known);
  for (const auto& setting : fix->settings) {
    const auto value = node[std::string(setting.name)];
    if (!value && setting.required) wrong(node, fmt::format("the fix '{}' needs '{}'", planned.id, setting.name));
    if (!value) continue;
    check_value(value, setting);
    planned.settings[std::string(setting.name)] = value.Scalar();
  }
  planned.speedup = speedup_of(node["speedup"]);
  return planned;
}

void check_beside(const YAML::Node& node, const std::string& id, const std::vector<model::PlannedFix>& others) {
  for (const auto& other : others) {
    if (other.id == id) wrong(node, "the fix '" + id + "' stands twice");
    if (catalog::exclude_each_other(id, other.id))
      wrong(node, "the fixes '" + id + "' and '" + other.id + "' cannot stand beside each other");
  }
}

model::PlanTarget target_of(const YAML::Node& node) {
  model::PlanTarget target;
  if (!node) return target;
  if (!node.IsMap()) wrong(node, "'made_for' must be a list of names and values");
  check_keys(node, {"torch", "gpu", "model", "script"});
  const auto text = [&](const char* key) { return node[key] ? scalar(node[key], key) : std::string(); };
  return {text("torch"), text("gpu"), text("model"), text("script")};
}

model::Plan plan_of(const YAML::Node& document) {
  if (!document.IsMap()) wrong(document, "this is no plan: it must begin with 'version:' and 'fixes:'");
  check_keys(document, {"version", "made_for", "fixes"});
  if (!document["version"] || scalar(document["version"], "version") != std::to_string(model::Plan::kVersion))
    wrong(document, fmt::format("a plan of version {} is needed", model::Plan::kVersion));
  model::Plan plan;
  plan.made_for = target_of(document["made_for"]);
  const auto fixes = document["fixes"];
  if (!fixes || !fixes.IsSequence()) wrong(document, "'fixes' must be a list");
  for (const auto& node : fixes) {
    auto fix = fix_of(node);
    check_beside(node, fix.id, plan.fixes);
    plan.fixes.push_back(std::move(fix));
  }
  std::ranges::stable_sort(plan.fixes, {}, [](const auto& fix) { return catalog::find_fix(fix.id)->order; });
  return plan;
}

nlohmann::ordered_json value_for_agent(const std::string& value, FixSetting::Kind kind) {
  switch (kind) {
    case FixSetting::Kind::count:
      return base::number<int>(value).value_or(0);
    case FixSetting::Kind::flag:
      return value == "true";
    case FixSetting::Kind::text:
      break;
  }
  return value;
}

}  // namespace

base::Result<model::Plan> parse_plan(const std::string& text) {
  try {
    return plan_of(YAML::Load(text));
  } catch (const Wrong& error) {
    return base::fail(base::Error::Kind::bad_input, fmt::format("line {}: {}", error.line, error.what), kRemedy);
  } catch (const YAML::Exception& error) {
    return base::fail(base::Error::Kind::bad_input,
                      fmt::format("line {}: {}", error.mark.line + 1, base::printable(error.msg, 200)),
                      "A plan is YAML; 'fullwatt tune' writes one.");
  }
}

base::Result<model::Plan> read_plan(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return base::fail(base::Error::Kind::not_found, "the plan " + path + " cannot be read",
                      "Give the path of a plan that 'fullwatt tune' wrote.");
  }
  std::string text(kMostBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kMostBytes)
    return base::fail(base::Error::Kind::bad_input, path + " is too large for a plan", kRemedy);
  auto plan = parse_plan(text);
  if (!plan) plan.error().message = path + ", " + plan.error().message;
  return plan;
}

std::string plan_to_yaml(const model::Plan& plan, const std::vector<std::string>& evidence) {
  std::string head;
  for (const auto& line : evidence) head += "# " + base::printable(line, kLongestComment) + "\n";
  YAML::Emitter out;
  out << YAML::BeginMap << YAML::Key << "version" << YAML::Value << model::Plan::kVersion;
  const auto& target = plan.made_for;
  if (target != model::PlanTarget{}) {
    out << YAML::Key << "made_for" << YAML::Value << YAML::BeginMap;
    for (const auto& [key, value] : {std::pair{"torch", target.torch}, std::pair{"gpu", target.gpu},
                                     std::pair{"model", target.model}, std::pair{"script", target.script}}) {
      if (!value.empty()) out << YAML::Key << key << YAML::Value << YAML::DoubleQuoted << value;
    }
    out << YAML::EndMap;
  }
  out << YAML::Key << "fixes" << YAML::Value << YAML::BeginSeq;
  for (const auto& planned : plan.fixes) {
    const auto* fix = catalog::find_fix(planned.id);
    out << YAML::BeginMap << YAML::Key << "id" << YAML::Value << planned.id;
    if (fix != nullptr) out << YAML::Comment(fmt::format("{} ({})", fix->title.en, to_string(fix->kind)));
    for (const auto& [name, value] : planned.settings) out << YAML::Key << name << YAML::Value << value;
    if (planned.speedup) out << YAML::Key << "speedup" << YAML::Value << fmt::format("{:.3f}", *planned.speedup);
    out << YAML::EndMap;
  }
  out << YAML::EndSeq << YAML::EndMap;
  return head + out.c_str() + "\n";
}

std::string plan_for_agent(const model::Plan& plan) {
  auto fixes = nlohmann::ordered_json::array();
  for (const auto& planned : plan.fixes) {
    const auto* fix = catalog::find_fix(planned.id);
    nlohmann::ordered_json entry{{"id", planned.id}};
    for (const auto& [name, value] : planned.settings) {
      const auto* setting = fix != nullptr ? fix->setting(name) : nullptr;
      entry[name] = value_for_agent(value, setting != nullptr ? setting->kind : FixSetting::Kind::text);
    }
    fixes.push_back(std::move(entry));
  }
  const auto& target = plan.made_for;
  const nlohmann::ordered_json made_for{
      {"torch", target.torch}, {"gpu", target.gpu}, {"model", target.model}, {"script", target.script}};
  return nlohmann::ordered_json{{"version", model::Plan::kVersion}, {"made_for", made_for}, {"fixes", fixes}}.dump();
}

void set_environment(const model::Plan& plan, base::Environment& environment) {
  for (const auto& fix : plan.fixes) {
    if (fix.id != "allocator") continue;
    // Torch 2.9 renamed it and reads both.
    for (const auto* name : {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}) {
      auto& value = environment[name];
      value += (value.empty() ? "" : ",") + fix.settings.at("settings");
    }
  }
}

}  // namespace fullwatt::tune
