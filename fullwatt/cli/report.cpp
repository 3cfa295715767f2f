#include <filesystem>
#include <fstream>
#include <memory>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/cli/command.hpp"
#include "fullwatt/cli/run_report.hpp"
#include "fullwatt/model/json.hpp"
#include "fullwatt/record/run_folder.hpp"
#include "fullwatt/show/perfetto.hpp"
#include "fullwatt/show/run_html.hpp"
#include "fullwatt/show/run_json.hpp"
#include "fullwatt/show/run_list.hpp"
#include "fullwatt/show/run_markdown.hpp"
#include "fullwatt/show/run_text.hpp"

namespace fullwatt::cli {
namespace {

namespace fs = std::filesystem;

struct ReportOptions {
  std::string run;
  bool list = false;
  bool json = false;
  bool markdown = false;
  bool verbose = false;
  std::string html;
  std::string perfetto;
};

/// What the list shows of a run, from the report that was written when it ended.
show::RunRow row_of(const std::string& folder) {
  show::RunRow row;
  row.id = fs::path(folder).filename().string();
  if (const auto info = record::read_info(folder)) {
    row.started = info->started;
    row.command = base::shell_line(info->command);
  }
  std::ifstream file(fs::path(folder) / "report.json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto json = model::Json::parse(text, nullptr, false);
  if (!json.is_object()) return row;
  try {
    row.steps = json.value("steps", std::uint64_t{0});
    row.verdict = json.value("verdict", std::string());
    if (row.steps > 0) row.step_ms = json.at("step_ms").value("median", 0.0);
  } catch (const model::Json::exception&) {
    return row;
  }
  return row;
}

int list_all(const std::string& runs, const Common& common) {
  std::vector<show::RunRow> rows;
  for (const auto& id : record::list_runs(runs)) rows.push_back(row_of((fs::path(runs) / id).string()));
  print(show::run_list(rows, output_style(common)));
  return kOk;
}

template <class Write>
int write_to(const std::string& path, Write write) {
  std::ofstream file(path, std::ios::binary);
  write(file);
  file.close();
  if (!file)
    return report(
        {base::Error::Kind::bad_input, "cannot write " + path, "Name a file in a folder that you may write to."});
  fmt::print(stderr, "written: {}\n", path);
  return kOk;
}

int run_report(const ReportOptions& options, const Common& common) {
  const auto runs = record::runs_folder(base::current_environment());
  if (options.list) return list_all(runs, common);
  const auto folder = record::find_run(runs, options.run);
  if (!folder) return report(folder.error());
  const auto explained = explain_folder(*folder);
  if (!explained) return report(explained.error());
  const auto style = output_style(common);
  const auto& explanation = explained->explanation;
  if (!options.perfetto.empty()) {
    return write_to(options.perfetto, [&](std::ostream& out) { show::write_perfetto(explained->run, out); });
  }
  if (!options.html.empty()) {
    return write_to(options.html, [&](std::ostream& out) {
      out << show::run_html(explanation, explained->run.sources, style.language);
    });
  }
  if (options.json) {
    print(model::dump(show::run_json(explanation, style.language), 1) + "\n");
  } else if (options.markdown) {
    print(show::run_markdown(explanation, style.language));
  } else {
    print(show::run_text(explanation, style, {options.verbose, page_of(*folder)}));
  }
  return kOk;
}

}  // namespace

void add_report(CLI::App& app, const Common& common, int& result) {
  auto* command = app.add_subcommand("report", "Shows a run again");
  const auto options = std::make_shared<ReportOptions>();
  command->add_option("run", options->run, "The run: its id, the beginning of it, or its folder (default: the newest)");
  command->add_flag("--list", options->list, "List the runs");
  auto* json = command->add_flag("--json", options->json, "Machine-readable report");
  auto* markdown = command->add_flag("--markdown", options->markdown, "For a bug report");
  markdown->excludes(json);
  command->add_option("--html", options->html, "Write a page for a browser to this file");
  command->add_option("--perfetto", options->perfetto, "Write a trace for ui.perfetto.dev to this file");
  command->add_flag("-v,--verbose", options->verbose, "More of everything");
  command->callback([options, &common, &result] { result = run_report(*options, common); });
}

}  // namespace fullwatt::cli
