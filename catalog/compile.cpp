// Turns the catalogue's YAML into C++ tables at build time, and refuses what is incomplete.
// Usage: catalog_compile OUTPUT.cpp versions.yaml architectures.yaml codes.yaml labels.yaml gpus.yaml fixes.yaml
// starting_points.yaml findings/*.yaml

#include <cmath>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <yaml-cpp/yaml.h>

namespace {

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw std::runtime_error("catalogue: " + where + ": " + what);
}

std::string literal(const std::string& text) {
  std::ostringstream out;
  out << "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out << '\\';
    if (c == '\n') {
      out << "\\n";
    } else {
      out << c;
    }
  }
  out << "\"";
  return out.str();
}

std::string required(const YAML::Node& node, const std::string& where, const std::string& key) {
  if (!node[key] || !node[key].IsScalar() || node[key].Scalar().empty()) refuse(where, "'" + key + "' is missing");
  return node[key].Scalar();
}

void check_placeholders(const std::string& text, const std::string& where) {
  static const std::set<std::string> kKnown{
      "gpu",       "bdf",         "index",      "uuid",     "driver_version", "library_version",
      "branch",    "kernel",      "path",       "variable", "value",          "limit",
      "default",   "pid",         "process",    "count",    "expected",       "version",
      "cuda",      "torch",       "arch",       "archs",    "python",         "unit",
      "index_tag", "temperature", "memory_mib", "xid",      "code",           "busy",
      "cause",     "factor",      "gain",       "idle",     "place",          "reason",
      "seconds",   "share",       "step",       "title",    "batch",          "cpus",
      "declared",  "device",      "dtype",      "file",     "function",       "kernels",
      "line",      "ms",          "name",       "rank",     "samples",        "workers"};
  for (std::size_t open = text.find('{'); open != std::string::npos; open = text.find('{', open + 1)) {
    const auto close = text.find('}', open);
    if (close == std::string::npos) refuse(where, "unclosed { in: " + text);
    const auto name = text.substr(open + 1, close - open - 1);
    if (!kKnown.contains(name)) refuse(where, "unknown placeholder {" + name + "}");
  }
}

std::string words(const YAML::Node& node, const std::string& where) {
  const auto en = required(node, where, "en");
  const auto zh = required(node, where, "zh");
  check_placeholders(en, where);
  check_placeholders(zh, where);
  return "{" + literal(en) + ", " + literal(zh) + "}";
}

std::string list(const YAML::Node& node) {
  std::string out;
  for (const auto& item : node) out += (out.empty() ? "" : ", ") + literal(item.Scalar());
  return out;
}

/// Writes `constexpr std::string_view name[] = {…};` and returns the expression that refers to it.
std::string text_array(std::ostream& out, const YAML::Node& node, const std::string& name) {
  if (!node || node.size() == 0) return "{}";
  out << "constexpr std::string_view " << name << "[] = {" << list(node) << "};\n";
  return name;
}

std::string remedy_array(std::ostream& out, const YAML::Node& node, const std::string& where, const std::string& name) {
  if (!node || !node.IsSequence() || node.size() == 0) refuse(where, "'remedy' is missing");
  out << "constexpr Step " << name << "[] = {\n";
  for (const auto& step : node) {
    const auto run = step["run"] ? step["run"].Scalar() : std::string{};
    check_placeholders(run, where);
    out << "    {" << words(step, where + " remedy") << ", " << literal(run) << "},\n";
  }
  out << "};\n";
  return name;
}

std::string needs(const YAML::Node& node, const std::string& where) {
  std::string out;
  for (const auto& item : node) {
    const auto name = item.Scalar();
    const std::string flag = name == "machine"   ? "kMachine"
                             : name == "process" ? "kProcess"
                             : name == "log"     ? "kLog"
                             : name == "load"    ? "kLoad"
                             : name == "run"     ? "kRun"
                                                 : std::string{};
    if (flag.empty()) refuse(where, "unknown need '" + name + "'");
    out += (out.empty() ? "" : " | ") + flag;
  }
  if (out.empty()) refuse(where, "'needs' is missing");
  return out;
}

std::string confidence(const std::string& letter, const std::string& where) {
  if (letter == "A") return "certain";
  if (letter == "B") return "likely";
  if (letter == "C") return "possible";
  refuse(where, "confidence must be A, B or C");
}

/// `gain: {keeps: [best, cautious], source: …}`: which share of the affected time is left once it is mended.
std::string gain(const YAML::Node& node, const std::string& where) {
  if (!node) return "{}";
  const auto keeps = node["keeps"];
  if (!keeps || !keeps.IsSequence() || keeps.size() != 2) refuse(where, "'gain' needs keeps: [best, cautious]");
  const auto best = keeps[0].as<double>();
  const auto cautious = keeps[1].as<double>();
  if (best < 0 || cautious < best || cautious > 1) refuse(where, "'keeps' must rise within 0 and 1");
  return "{" + keeps[0].Scalar() + ", " + keeps[1].Scalar() + ", " + literal(required(node, where, "source")) + "}";
}

constexpr const char* kLayers[] = {"hardware", "driver", "cuda", "pytorch", "application"};

struct Compiler {
  std::ostringstream arrays;
  std::map<std::string, std::ostringstream> rows;  // by layer
  std::set<std::string> ids;
  std::vector<std::pair<std::string, std::string>> references;  // from → to

  void entry(const std::string& id, const YAML::Node& node, const std::string& layer) {
    if (!ids.insert(id).second) refuse(id, "stands twice");
    const auto n = std::to_string(ids.size());
    const auto remedy = remedy_array(arrays, node["remedy"], id, "kRemedy" + n);
    const auto kernel_log = text_array(arrays, node["kernel_log"], "kKernelLog" + n);
    const auto training_log = text_array(arrays, node["training_log"], "kTrainingLog" + n);
    const auto explained_by = text_array(arrays, node["explained_by"], "kExplainedBy" + n);
    const auto see = text_array(arrays, node["see"], "kSee" + n);
    const auto sources = text_array(arrays, node["sources"], "kSources" + n);
    for (const auto& other : node["see"]) references.emplace_back(id, other.Scalar());
    for (const auto& other : node["explained_by"]) references.emplace_back(id, other.Scalar());
    const bool symptom = node["symptom"] && node["symptom"].as<bool>();
    const auto own_layer = node["layer"] ? node["layer"].Scalar() : layer;
    if (!rows.contains(own_layer)) refuse(id, "unknown layer '" + own_layer + "'");
    auto& table = rows[own_layer];
    table << "    {" << literal(id) << ", model::Layer::" << own_layer
          << ", model::Severity::" << required(node, id, "severity")
          << ", model::Confidence::" << confidence(required(node, id, "confidence"), id) << ",\n     "
          << needs(node["needs"], id) << ", " << (symptom ? "true" : "false") << ",\n     "
          << words(node["title"], id + " title") << ",\n     " << words(node["cause"], id + " cause") << ",\n     "
          << remedy << ", " << kernel_log << ", " << training_log << ", " << explained_by << ", " << see << ", "
          << sources << ", " << gain(node["gain"], id) << "},\n";
  }

  Compiler() {
    for (const auto* layer : kLayers) rows[layer];
  }

  std::string table() const {
    std::string all;
    for (const auto* layer : kLayers) all += rows.at(layer).str();
    return all;
  }

  void findings(const std::string& file) {
    const auto document = YAML::LoadFile(file);
    const auto layer = required(document, file, "layer");
    for (const auto& item : document["findings"]) entry(item.first.Scalar(), item.second, layer);
  }

  void check_references() const {
    for (const auto& [from, to] : references) {
      if (!ids.contains(to)) refuse(from, "'see' names '" + to + "', which does not exist");
    }
  }
};

void versions(std::ostream& out, const std::string& file) {
  const auto document = YAML::LoadFile(file);
  out << "constexpr CudaFloor kCudaFloors[] = {\n";
  for (const auto& item : document["cuda_floors"]) {
    out << "    {" << item.first.Scalar() << ", " << literal(item.second.Scalar()) << "},\n";
  }
  out << "};\nconstexpr BranchCuda kBranchCudas[] = {\n";
  for (const auto& item : document["branch_cudas"]) {
    out << "    {" << item.first.Scalar() << ", " << literal(item.second.Scalar()) << "},\n";
  }
  out << "};\nconstexpr TorchWheel kTorchWheels[] = {\n";
  for (const auto& item : document["torch_wheels"]) {
    out << "    {" << literal(required(item, file, "torch")) << ", " << literal(required(item, file, "tag")) << ", "
        << literal(required(item, file, "archs")) << "},\n";
  }
  out << "};\n";
}

void architectures(std::ostream& out, const std::string& file) {
  out << "constexpr Architecture kArchitectures[] = {\n";
  for (const auto& item : YAML::LoadFile(file)["architectures"]) {
    out << "    {" << literal(required(item, file, "name")) << ", " << required(item, file, "first") << ", "
        << required(item, file, "last") << ", " << literal(required(item, file, "compute_capability")) << ", "
        << required(item, file, "first_branch") << ", " << required(item, file, "last_branch") << ", "
        << literal(required(item, file, "module")) << "},\n";
  }
  out << "};\n";
}

void codes(std::ostream& out, const std::string& file) {
  const auto document = YAML::LoadFile(file);
  for (const auto* vendor : {"nvml", "cuda"}) {
    out << "constexpr Code k_" << vendor << "_codes[] = {\n";
    for (const auto& item : document[vendor]) {
      out << "    {" << item.first.Scalar() << ", " << literal(item.second.Scalar()) << "},\n";
    }
    out << "};\n";
  }
}

void labels(std::ostream& out, const std::string& file) {
  out << "constexpr Label kLabels[] = {\n";
  for (const auto& item : YAML::LoadFile(file)["labels"]) {
    out << "    {" << literal(item.first.Scalar()) << ", " << words(item.second, item.first.Scalar()) << "},\n";
  }
  out << "};\n";
}

/// A number of the GPU table, "0" where it is left out; refuses text.
std::string figure(const YAML::Node& node, const std::string& where, const std::string& key) {
  if (!node[key]) return "0";
  try {
    static_cast<void>(node[key].as<double>());
  } catch (const YAML::Exception&) {
    refuse(where, "'" + key + "' is not a number");
  }
  return node[key].Scalar();
}

std::string peaks(const YAML::Node& node, const std::string& where) {
  static_cast<void>(required(node, where, "fp32"));
  std::string out;
  for (const auto* precision : {"fp32", "tf32", "fp16", "fp16_fp16", "bf16", "fp8", "int8"}) {
    out += (out.empty() ? "" : ", ") + figure(node, where, precision);
  }
  return "{" + out + "}";
}

/// The sources of a card, comma-separated; every key must be explained at the head of the file.
std::string card_sources(const YAML::Node& node, const YAML::Node& known, const std::string& where) {
  std::string out;
  for (const auto& key : node["sources"]) {
    if (!known[key.Scalar()]) refuse(where, "unknown source '" + key.Scalar() + "'");
    out += (out.empty() ? "" : ", ") + key.Scalar();
  }
  if (out.empty()) refuse(where, "'sources' is missing");
  return literal(out);
}

void gpus(std::ostream& out, const std::string& file) {
  const auto document = YAML::LoadFile(file);
  out << "constexpr GpuRate kGpuRates[] = {\n";
  for (const auto& item : document["rates"]) {
    const auto name = required(item, file, "class");
    out << "    {" << literal(name) << ", " << required(item, name, "cores") << ", " << peaks(item, name) << "},\n";
  }
  out << "};\nconstexpr GpuCard kGpuCards[] = {\n";
  for (const auto& item : document["cards"]) {
    const auto card = required(item, file, "card");
    out << "    {" << literal(required(item, card, "name")) << ", " << literal(card) << ", "
        << literal(required(item, card, "segment")) << ", " << literal(required(item, card, "capability")) << ", "
        << literal(required(item, card, "rate")) << ",\n     " << required(item, card, "multiprocessors") << ", "
        << required(item, card, "boost_mhz") << ", " << figure(item, card, "tensor_mhz") << ", "
        << required(item, card, "memory_gb") << ", " << required(item, card, "bandwidth_gbs") << ", "
        << required(item, card, "power_w") << ", " << peaks(item, card) << ",\n     "
        << card_sources(item, document["sources"], card) << ", " << literal(required(item, card, "confidence")) << ", "
        << literal(item["note"] ? item["note"].Scalar() : std::string{}) << "},\n";
  }
  out << "};\n";
}

/// "count" and "text?": the kind of a setting, and whether a plan must give it.
std::string fix_setting(const std::string& name, std::string kind, const std::string& where) {
  const bool required = !kind.ends_with('?');
  if (!required) kind.pop_back();
  if (kind != "count" && kind != "text" && kind != "flag") refuse(where, "unknown kind of setting '" + kind + "'");
  return "{" + literal(name) + ", FixSetting::Kind::" + kind + ", " + (required ? "true" : "false") + "}";
}

std::string fix_settings(std::ostream& out, const YAML::Node& node, const std::string& where, const std::string& name) {
  if (!node || node.size() == 0) return "{}";
  out << "constexpr FixSetting " << name << "[] = {";
  for (const auto& item : node) out << fix_setting(item.first.Scalar(), item.second.Scalar(), where) << ", ";
  out << "};\n";
  return name;
}

/// Fixes in their order; what they mend must be findings.
void fixes(std::ostream& out, const std::string& file, const std::set<std::string>& findings) {
  const auto document = YAML::LoadFile(file)["fixes"];
  std::map<int, std::string> rows;
  for (const auto& item : document) {
    const auto id = item.first.Scalar();
    const auto& node = item.second;
    const auto n = std::to_string(rows.size());
    const auto kind = required(node, id, "class");
    if (kind != "exact" && kind != "numeric" && kind != "training") refuse(id, "unknown class '" + kind + "'");
    for (const auto& finding : node["mends"]) {
      if (!findings.contains(finding.Scalar())) refuse(id, "'mends' names '" + finding.Scalar() + "', no finding");
    }
    for (const auto& other : node["unlike"]) {
      if (!document[other.Scalar()]) refuse(id, "'unlike' names '" + other.Scalar() + "', no fix");
    }
    const auto settings = fix_settings(out, node["settings"], id, "kFixSettings" + n);
    const auto mends = text_array(out, node["mends"], "kMends" + n);
    const auto unlike = text_array(out, node["unlike"], "kUnlike" + n);
    const auto order = std::stoi(required(node, id, "order"));
    if (rows.contains(order)) refuse(id, "another fix has the order " + std::to_string(order));
    const auto live = node["live"] && node["live"].as<bool>() ? ", true, " : ", false, ";
    rows[order] = "    {" + literal(id) + ", FixClass::" + kind + ", " + std::to_string(order) + live + settings +
                  ", " + mends + ", " + unlike + ",\n     " + words(node["title"], id + " title") + ",\n     " +
                  words(node["what"], id + " what") + ",\n     " + words(node["risk"], id + " risk") + ",\n     " +
                  literal(required(node, id, "patch")) + "},\n";
  }
  out << "constexpr Fix kFixes[] = {\n";
  for (const auto& [order, row] : rows) out << row;
  out << "};\n";
}

/// Rows by a falling limit, the last of which is 0.
void falling(const YAML::Node& rows, const std::string& where, const std::string& limit) {
  double before = HUGE_VAL;
  for (const auto& row : rows) {
    const auto now = row[limit].as<double>();
    if (now >= before) refuse(where, "'" + limit + "' does not fall");
    before = now;
  }
  if (before != 0) refuse(where, "the last row must fit everything");
}

void starting_points(std::ostream& out, const std::string& file) {
  const auto document = YAML::LoadFile(file);
  falling(document["cards"], "cards", "least_gb");
  falling(document["data"], "data", "least_samples");
  const auto fields = [&](const YAML::Node& row, const std::string& where, const std::vector<std::string>& names) {
    std::string text;
    for (const auto& name : names) text += required(row, where, name) + ", ";
    return text;
  };
  out << "constexpr StartingCard kStartingCards[] = {\n";
  for (const auto& row : document["cards"])
    out << "    {" << fields(row, "cards", {"least_gb", "batch", "workers", "prefetch", "on_gpu", "recompute"})
        << literal(required(row, "cards", "such_as")) << "},\n";
  out << "};\nconstexpr StartingData kStartingData[] = {\n";
  for (const auto& row : document["data"])
    out << "    {" << fields(row, "data", {"least_samples", "batch", "workers", "prefetch"}) << "},\n";
  out << "};\n";
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() < 9)
    refuse("usage", "OUTPUT versions architectures codes labels gpus fixes starting_points findings…");
  std::ofstream out(arguments[0]);
  out << "#include \"catalog/tables.hpp\"\n\nnamespace fullwatt::catalog {\nnamespace {\n\n";
  versions(out, arguments[1]);
  architectures(out, arguments[2]);
  codes(out, arguments[3]);
  labels(out, arguments[4]);
  gpus(out, arguments[5]);
  Compiler compiler;
  for (std::size_t i = 8; i < arguments.size(); ++i) compiler.findings(arguments[i]);
  compiler.check_references();
  fixes(out, arguments[6], compiler.ids);
  starting_points(out, arguments[7]);
  out << compiler.arrays.str() << "constexpr Entry kEntries[] = {\n"
      << compiler.table() << "};\n\n}  // namespace\n\n"
      << "const Tables& tables() {\n  static constexpr Tables kTables{kEntries, kArchitectures, kCudaFloors, "
         "kBranchCudas,"
      << " kTorchWheels, k_nvml_codes, k_cuda_codes, kLabels, kGpuCards, kGpuRates, kFixes, kStartingCards, "
         "kStartingData};\n  return "
         "kTables;\n}\n\n}  // "
         "namespace "
         "fullwatt::catalog\n";
  return out.good() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
