#include <algorithm>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/model/json.hpp"
#include "fullwatt/record/run_folder.hpp"
#include "fullwatt/record/samples.hpp"
#include "fullwatt/record/spool_reader.hpp"

namespace fullwatt::record {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kFileLimit = 8UL * 1024 * 1024;

std::string read_text(const fs::path& path) {
  std::error_code error;
  if (fs::file_size(path, error) > kFileLimit || error) return {};
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The agent's facts; a line that was cut by a kill is left out.
std::vector<model::Fact> read_facts(const fs::path& path) {
  std::vector<model::Fact> facts;
  const auto text = read_text(path);
  for (auto line : base::lines(text)) {
    const auto json = model::Json::parse(line, nullptr, false);
    if (json.is_object() && json.contains("kind") && json["kind"].is_string())
      facts.push_back({json["kind"].get<std::string>(), std::string(line)});
  }
  return facts;
}

/// Trainers by rank first, then programs without the agent, then workers.
auto place(const model::TrainingProcess& process) {
  return std::tuple(process.role == model::TrainingProcess::Role::worker, process.step_count == 0, process.rank,
                    process.pid);
}

void read_processes(const fs::path& folder, model::Run& run, std::vector<std::string>& remarks) {
  for (const auto& path : spools(folder.string())) {
    auto process = read_spool(path);
    if (!process) {
      remarks.push_back(fmt::format("{}: {}", fs::path(path).filename().string(), process.error().message));
      continue;
    }
    process->facts = read_facts(folder / fmt::format("facts-{}.jsonl", process->pid));
    run.processes.push_back(*std::move(process));
  }
  std::ranges::sort(run.processes, {}, place);
}

/// The files that were kept, by the paths they had.
void read_sources(const fs::path& folder, model::Run& run) {
  const auto index = model::Json::parse(read_text(folder / "sources" / "index.json"), nullptr, false);
  if (!index.is_object()) return;
  for (const auto& [name, entry] : index.items()) {
    if (!entry.is_object() || name.find('/') != std::string::npos || !entry.contains("path")) continue;
    if (!entry["path"].is_string()) continue;
    auto& files = entry.value("config", false) ? run.config_files : run.sources;
    files[entry["path"].get<std::string>()] = read_text(folder / "sources" / name);
  }
}

}  // namespace

base::Result<model::Run> read_run(const std::string& folder, std::vector<std::string>& remarks) {
  auto info = read_info(folder);
  if (!info) return std::unexpected(info.error());
  model::Run run;
  run.info = *std::move(info);
  read_processes(folder, run, remarks);
  if (auto samples = Samples::read((fs::path(folder) / "samples.fw").string())) {
    run.gpu_samples = samples->gpu();
    run.power_samples = samples->power();
    run.host_samples = samples->host();
  }
  read_sources(folder, run);
  run.source_facts = read_text(fs::path(folder) / "source_facts.json");
  return run;
}

}  // namespace fullwatt::record
