#include "fullwatt/tune/program_files.hpp"

#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

namespace fullwatt::tune {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// Size and time of the last change; nothing for what is no file.
json stamp(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return {};
  const auto size = fs::file_size(path, error);
  const auto changed = fs::last_write_time(path, error);
  return error ? json() : json{size, changed.time_since_epoch().count()};
}

void add(json& files, const std::string& path) {
  std::error_code error;
  if (auto now = stamp(path); !now.is_null()) files[fs::absolute(path, error).lexically_normal().string()] = now;
}

void add_named(json& files, const json& fact) {
  if (!fact.is_object() || !fact.contains("kind")) return;
  if (fact["kind"] == "config_file" && fact.contains("path") && fact["path"].is_string()) add(files, fact["path"]);
  if (fact["kind"] != "program" || !fact.contains("files") || !fact["files"].is_array()) return;
  for (const auto& path : fact["files"]) {
    if (path.is_string()) add(files, path);
  }
}

}  // namespace

json program_files(const std::vector<std::string>& command, const std::string& run_folder) {
  auto files = json::object();
  for (const auto& word : command) add(files, word);
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run_folder, error)) {
    if (entry.path().extension() != ".jsonl" || !entry.path().filename().string().starts_with("facts-")) continue;
    std::ifstream facts(entry.path());
    for (std::string line; std::getline(facts, line);) add_named(files, json::parse(line, nullptr, false));
  }
  return files;
}

std::string changed_file(const json& files) {
  if (!files.is_object()) return {};
  for (const auto& [path, then] : files.items()) {
    if (stamp(path) != then) return path;
  }
  return {};
}

}  // namespace fullwatt::tune
