#include "fullwatt/record/run_folder.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <unistd.h>

#include "fullwatt/base/files.hpp"
#include "fullwatt/base/text.hpp"
#include "fullwatt/model/json.hpp"
#include "fullwatt/record/spool_reader.hpp"

namespace fullwatt::record {
namespace {

namespace fs = std::filesystem;

constexpr const char* kInfoFile = "run.json";

bool can_write(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  return !error && ::access(folder.c_str(), W_OK | X_OK) == 0;
}

std::string variable(const base::Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found != environment.end() ? found->second : std::string();
}

std::string time_id() {
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  ::localtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y%m%d-%H%M%S", &parts);
  return text.data();
}

void remove_oldest(const std::string& runs) {
  const auto all = list_runs(runs);
  for (std::size_t i = kMostRuns; i < all.size(); ++i) {
    std::error_code error;
    fs::remove_all(fs::path(runs) / all[i], error);
  }
}

}  // namespace

std::string runs_folder(const base::Environment& environment) {
  if (const auto home = variable(environment, "FULLWATT_HOME"); !home.empty())
    return (fs::path(home) / "runs").string();
  const auto here = fs::absolute(".fullwatt") / "runs";
  if (can_write(here)) return here.string();
  auto state = fs::path(variable(environment, "XDG_STATE_HOME"));
  if (state.empty()) state = fs::path(variable(environment, "HOME")) / ".local" / "state";
  return (state / "fullwatt" / "runs").string();
}

base::Result<std::string> create_run_folder(const std::string& runs) {
  std::error_code error;
  fs::create_directories(runs, error);
  const auto id = time_id();
  for (int attempt = 0; attempt < 100 && !error; ++attempt) {
    const auto folder = fs::path(runs) / (attempt == 0 ? id : fmt::format("{}-{}", id, attempt + 1));
    // Two runs at once: whoever makes the folder has it.
    if (fs::create_directory(folder, error)) {
      remove_oldest(runs);
      return folder.string();
    }
  }
  return base::fail(base::Error::Kind::unavailable,
                    fmt::format("cannot make a folder in {}: {}", runs, error.message()),
                    "Name another place with FULLWATT_HOME.");
}

std::vector<std::string> list_runs(const std::string& runs) {
  std::vector<std::string> ids;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(runs, error)) {
    if (entry.is_directory(error)) ids.push_back(entry.path().filename().string());
  }
  std::ranges::sort(ids, std::greater{});
  return ids;
}

base::Result<std::string> find_run(const std::string& runs, const std::string& wanted) {
  std::error_code error;
  if (!wanted.empty() && fs::is_directory(wanted, error)) return wanted;
  for (const auto& id : list_runs(runs)) {
    if (id.starts_with(wanted)) return (fs::path(runs) / id).string();
  }
  if (wanted.empty()) {
    return base::fail(base::Error::Kind::bad_input, "there is no run in " + runs,
                      "Make one: fullwatt run -- python train.py");
  }
  return base::fail(base::Error::Kind::bad_input, fmt::format("there is no run '{}' in {}", wanted, runs),
                    "List them: fullwatt report --list");
}

base::Result<void> write_info(const std::string& folder, const model::RunInfo& info) {
  auto json = model::to_json(info);
  json["schema"] = model::RunInfo::kSchemaVersion;
  return base::write_whole((fs::path(folder) / kInfoFile).string(), model::dump(json, 2) + "\n");
}

base::Result<model::RunInfo> read_info(const std::string& folder) {
  const auto path = (fs::path(folder) / kInfoFile).string();
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto json = model::Json::parse(text, nullptr, false);
  if (json.is_discarded() || !json.is_object()) {
    return base::fail(base::Error::Kind::bad_input,
                      fmt::format("{} is no folder of a run: its run.json cannot be read", folder),
                      "List the runs: fullwatt report --list");
  }
  const auto schema = json.value("schema", 0);
  if (schema != model::RunInfo::kSchemaVersion) {
    return base::fail(
        base::Error::Kind::bad_input,
        fmt::format("{} has schema {}, this program reads {}", path, schema, model::RunInfo::kSchemaVersion),
        "Use the version of fullwatt that made it.");
  }
  auto without = json;
  without.erase("schema");
  return model::from_json<model::RunInfo>(without);
}

std::vector<std::string> spools(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const auto name = entry.path().filename().string();
    if (name.starts_with("spool-") && name.ends_with(".fw")) paths.push_back(entry.path().string());
  }
  std::ranges::sort(paths);
  return paths;
}

void shrink_spools(const std::string& folder) {
  for (const auto& path : spools(folder)) {
    if (const auto used = used_bytes(path)) {
      std::error_code error;
      fs::resize_file(path, *used, error);
    }
  }
}

}  // namespace fullwatt::record
