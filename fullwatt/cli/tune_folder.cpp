#include "fullwatt/cli/tune_folder.hpp"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include "fullwatt/base/files.hpp"
#include "fullwatt/model/json.hpp"
#include "fullwatt/record/run_folder.hpp"
#include "fullwatt/show/tune_html.hpp"
#include "fullwatt/show/tune_json.hpp"
#include "fullwatt/show/version.hpp"

namespace fullwatt::cli {
namespace {

namespace fs = std::filesystem;
constexpr const char* kAsked = "asked.json";
constexpr const char* kAnswer = "tuning.json";
constexpr const char* kPage = "report.html";

std::string tunes_folder(const base::Environment& environment) {
  return (fs::path(record::runs_folder(environment)).parent_path() / "tunes").string();
}

/// What must be the same for one tuning to go on where another was cut off, beside the program itself.
std::string asked(const TuneOptions& options) {
  std::error_code error;
  return model::dump({{"version", show::kVersion},
                      {"folder", fs::current_path(error).string()},
                      {"command", options.command},
                      {"exact", options.exact},
                      {"skip", options.skip},
                      {"allow", options.allow}});
}

std::string content(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The folder for itself, or -1 when another tuning is at work there. One that was killed while it started a program
/// has left a child that holds the lock until it executes that.
int lock(const std::string& folder) {
  constexpr int kTries = 40;
  constexpr std::chrono::milliseconds kPause{50};
  const int file = ::open((fs::path(folder) / kAsked).c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return -1;
  for (int i = 0; i < kTries; ++i) {
    if (::flock(file, LOCK_EX | LOCK_NB) == 0) return file;
    std::this_thread::sleep_for(kPause);
  }
  ::close(file);
  return -1;
}

base::Result<void> write(const fs::path& path, const std::string& text) {
  auto written = base::write_whole(path.string(), text);
  if (!written) written.error().remedy = "Name another place with FULLWATT_HOME.";
  return written;
}

}  // namespace

base::Result<TuneFolder> TuneFolder::open(const base::Environment& environment, const TuneOptions& options) {
  const auto tunes = tunes_folder(environment);
  const auto wanted = asked(options);
  std::string changed;
  for (const auto& id : record::list_runs(tunes)) {
    const auto folder = fs::path(tunes) / id;
    if (content(folder / kAsked) != wanted) continue;
    if (options.anew || fs::exists(folder / kAnswer)) break;  // with it, those before it are over
    if (changed = tune::changed_since(folder.string()); !changed.empty()) break;
    if (const int held = lock(folder.string()); held >= 0) return TuneFolder(folder.string(), held);
  }
  const auto folder = record::create_run_folder(tunes);
  if (!folder) return std::unexpected(folder.error());
  if (const auto written = write(fs::path(*folder) / kAsked, wanted); !written) return std::unexpected(written.error());
  TuneFolder made(*folder, lock(*folder));
  made.changed_ = changed;
  return made;
}

TuneFolder::TuneFolder(std::string path, int lock)
    : path_(std::move(path)), lock_(lock), kept_(tune::kept_trials(path_)) {}

TuneFolder::TuneFolder(TuneFolder&& other) noexcept
    : path_(std::move(other.path_)),
      lock_(std::exchange(other.lock_, -1)),
      kept_(other.kept_),
      changed_(std::move(other.changed_)) {}

TuneFolder::~TuneFolder() {
  if (lock_ >= 0) ::close(lock_);
}

base::Result<void> TuneFolder::finish(const model::Tuning& tuning, bool keep_trials, const show::Style& style) {
  if (auto written = write(fs::path(path_) / kPage, show::tune_html(tuning, style)); !written) return written;
  if (tuning.interrupted) return {};
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path_, error)) {
    if (entry.is_directory(error) && !keep_trials) fs::remove_all(entry.path(), error);
  }
  return write(fs::path(path_) / kAnswer, model::dump(show::tune_json(tuning), 2) + "\n");
}

}  // namespace fullwatt::cli
