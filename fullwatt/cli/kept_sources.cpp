#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/cli/agent_paths.hpp"
#include "fullwatt/cli/run_report.hpp"
#include "fullwatt/model/json.hpp"
#include "fullwatt/record/run_folder.hpp"

namespace fullwatt::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostFiles = 60;
constexpr std::uintmax_t kLargestFile = 512UL * 1024;
constexpr std::chrono::milliseconds kReadingLimit{20'000};

/// What the agents of a run said about files.
struct Named {
  std::set<std::string> sources;
  std::set<std::string> config_files;
  std::vector<std::string> prefixes;  ///< of Python and its libraries
  std::string python;
};

std::string text_of(const model::Json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

void read_fact(const model::Fact& fact, Named& named) {
  const auto json = model::Json::parse(fact.json, nullptr, false);
  if (!json.is_object()) return;
  if (fact.kind == "process") {
    named.python = text_of(json, "executable");
    named.sources.insert(text_of(json, "main"));
    for (const auto& prefix : json.value("prefixes", model::Json::array())) {
      if (prefix.is_string()) named.prefixes.push_back(prefix.get<std::string>());
    }
  } else if (fact.kind == "config_file") {
    named.config_files.insert(text_of(json, "path"));
  } else if (fact.kind == "source") {
    named.sources.insert(text_of(json, "path"));
  }
}

Named named_files(const model::Run& run) {
  Named named;
  for (const auto& process : run.processes) {
    for (const auto& fact : process.facts) read_fact(fact, named);
    for (const auto& stack : process.stacks) {
      for (const auto& site : stack) named.sources.insert(site.file);
    }
    for (const auto& phase : process.phases) {
      const auto& site = process.text(phase.site);
      named.sources.insert(site.substr(0, site.find(".py:") == std::string::npos ? 0 : site.find(".py:") + 3));
    }
  }
  std::erase_if(named.sources, [&](const std::string& path) {
    const auto inside = [&](const std::string& prefix) { return !prefix.empty() && path.starts_with(prefix); };
    return !path.ends_with(".py") || std::ranges::any_of(named.prefixes, inside);
  });
  return named;
}

/// Copies the files once, under numbers; the index tells their paths.
class Keeper {
 public:
  explicit Keeper(const fs::path& folder) : folder_(folder) {
    std::error_code error;
    fs::create_directories(folder_, error);
    std::ifstream file(folder_ / "index.json");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    index_ = model::Json::parse(text, nullptr, false);
    if (!index_.is_object()) index_ = model::Json::object();
    for (const auto& [name, entry] : index_.items()) kept_.insert(text_of(entry, "path"));
  }

  void keep(const std::string& path, bool config) {
    std::error_code error;
    if (kept_.contains(path) || kept_.size() >= kMostFiles || !fs::is_regular_file(path, error)) return;
    if (fs::file_size(path, error) > kLargestFile || error) return;
    const auto name = fmt::format("{}-{}", kept_.size() + 1, base::file_name(path));
    if (!fs::copy_file(path, folder_ / name, fs::copy_options::overwrite_existing, error)) return;
    index_[name] = {{"path", path}, {"config", config}};
    kept_.insert(path);
  }

  void write_index() const { std::ofstream(folder_ / "index.json") << model::dump(index_, 1) << '\n'; }

 private:
  fs::path folder_;
  model::Json index_;
  std::set<std::string> kept_;
};

/// Reads the sources with the run's own Python, in a process of its own.
void read_source_facts(const std::string& folder, const Named& named) {
  auto environment = base::current_environment();
  const auto agent = find_agent(environment);
  if (!agent || named.python.empty() || named.sources.empty()) return;
  base::ChildOptions options;
  options.argv = {named.python, "-I", agent->python + "/fullwatt/source_facts.py"};
  for (const auto& path : named.sources) {
    if (options.argv.size() < kMostFiles) options.argv.push_back(path);
  }
  options.environment = std::move(environment);
  options.limit = kReadingLimit;
  const auto result = base::run_child(options);
  if (result && result->ok()) std::ofstream(fs::path(folder) / "source_facts.json") << result->out;
}

}  // namespace

void keep_sources(const std::string& folder) {
  std::vector<std::string> remarks;
  const auto run = record::read_run(folder, remarks);
  if (!run) return;
  const auto named = named_files(*run);
  Keeper keeper(fs::path(folder) / "sources");
  for (const auto& path : named.sources) keeper.keep(path, false);
  for (const auto& path : named.config_files) keeper.keep(path, true);
  keeper.write_index();
  read_source_facts(folder, named);
}

}  // namespace fullwatt::cli
