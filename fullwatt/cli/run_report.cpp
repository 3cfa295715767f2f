#include "fullwatt/cli/run_report.hpp"

#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "fullwatt/doctor/probe/examine.hpp"
#include "fullwatt/doctor/probe/raw.hpp"
#include "fullwatt/explain/explain.hpp"
#include "fullwatt/model/json.hpp"
#include "fullwatt/record/run_folder.hpp"
#include "fullwatt/show/run_html.hpp"
#include "fullwatt/show/run_json.hpp"

namespace fullwatt::cli {
namespace {

namespace fs = std::filesystem;

base::Result<void> write_file(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) return base::fail(base::Error::Kind::unavailable, "cannot write " + path.string());
  return {};
}

}  // namespace

base::Result<ExplainedRun> explain_folder(const std::string& folder) {
  std::vector<std::string> remarks;
  auto run = record::read_run(folder, remarks);
  if (!run) return std::unexpected(run.error());
  if (const auto raw = doctor::load_raw(folder)) run->machine = doctor::examine(doctor::replay(*raw), raw->target);
  ExplainedRun explained{*std::move(run), {}};
  explained.explanation = explain::explain(explained.run);
  auto& all = explained.explanation.remarks;
  all.insert(all.end(), remarks.begin(), remarks.end());
  return explained;
}

std::string page_of(const std::string& folder) {
  std::error_code failed;
  const auto page = fs::path(folder) / "report.html";
  if (!fs::exists(page, failed)) return {};
  const auto near = fs::proximate(page, failed);
  return failed || near.string().starts_with("..") ? page.string() : near.string();
}

base::Result<void> write_reports(const std::string& folder, const ExplainedRun& explained, catalog::Language language) {
  const auto json = model::dump(show::run_json(explained.explanation, language), 1);
  if (auto written = write_file(fs::path(folder) / "report.json", json + "\n"); !written) return written;
  return write_file(fs::path(folder) / "report.html",
                    show::run_html(explained.explanation, explained.run.sources, language));
}

}  // namespace fullwatt::cli
