#include "fullwatt/show/doctor.hpp"

#include <algorithm>
#include <chrono>
#include <memory>

#include <fmt/format.h>
#include <sys/resource.h>

#include "fullwatt/base/archive.hpp"
#include "fullwatt/base/text.hpp"
#include "fullwatt/cli/command.hpp"
#include "fullwatt/cli/examination.hpp"
#include "fullwatt/doctor/diagnose.hpp"
#include "fullwatt/doctor/redact.hpp"
#include "fullwatt/show/explain.hpp"

namespace fullwatt::cli {
namespace {

struct DoctorOptions {
  ExaminationOptions examination;
  bool json = false;
  bool markdown = false;
  bool html = false;
  bool list_checks = false;
  bool verbose = false;
  bool require_gpu = false;
  std::vector<std::string> only;
  std::vector<std::string> skip;
  std::string fail_on = "error";
  std::string save;
  std::string bundle;
};

/// A word of --only or --skip that fits no check is a typing error, not an empty choice.
base::Result<doctor::Choice> choice_of(const DoctorOptions& options) {
  doctor::Choice choice;
  for (const auto& [words, into] : {std::pair{&options.only, &choice.only}, std::pair{&options.skip, &choice.skip}}) {
    for (const auto& word : *words) {
      const doctor::Choice probe{{word}, {}};
      const auto fits = [&](const catalog::Entry& entry) { return probe.wants(entry.id, entry.layer); };
      if (std::ranges::none_of(catalog::entries(), fits)) {
        const auto near = catalog::nearest(word);
        return base::fail(
            base::Error::Kind::bad_input, fmt::format("no check is called '{}'", word),
            near.empty() ? "List them with: fullwatt doctor --list-checks" : fmt::format("Did you mean '{}'?", near));
      }
      into->insert(word);
    }
  }
  return choice;
}

/// What the bundle holds, with everything that identifies a person or a machine taken out.
base::Result<void> write_bundle(const std::string& path, const Examined& examined, const show::DoctorReport& report) {
  const doctor::Redactor redact(examined.raw);
  const std::string readme =
      "What 'fullwatt doctor --bundle' packed: machine.yaml replays with 'fullwatt doctor --from FOLDER'; report.json "
      "and report.md are\n"
      "the diagnosis. Names of user and host, home folders, GPU UUIDs, network addresses and secrets were replaced. "
      "Look before you send it.\n";
  return base::write_archive(
      path, {{"fullwatt-bundle/README.txt", readme},
             {"fullwatt-bundle/machine.yaml", redact(doctor::raw_to_yaml(redact(examined.raw)))},
             {"fullwatt-bundle/report.json", redact(model::dump(show::doctor_json(report, catalog::Language::en), 2))},
             {"fullwatt-bundle/report.md", redact(show::doctor_markdown(report, catalog::Language::en))}});
}

std::string drawn(const DoctorOptions& options, const show::DoctorReport& report, const show::Style& style) {
  if (options.json) return model::dump(show::doctor_json(report, style.language), 2) + "\n";
  if (options.markdown) return show::doctor_markdown(report, style.language);
  if (options.html) return show::doctor_html(report, style.language);
  return show::doctor_text(report, style, options.verbose);
}

int exit_code(const DoctorOptions& options, const show::DoctorReport& report) {
  const bool has_gpu = !report.machine.gpus.empty();
  if (options.require_gpu && !has_gpu) return kNotExamined;
  const auto threshold = model::severity_from_string(options.fail_on);
  const auto counts = [&](const model::Finding& finding) { return threshold && finding.severity >= *threshold; };
  return std::ranges::any_of(report.diagnosis.findings, counts) ? kFindings : kOk;
}

std::uint64_t own_peak_memory() {
  rusage usage{};
  return ::getrusage(RUSAGE_SELF, &usage) == 0 ? static_cast<std::uint64_t>(usage.ru_maxrss) * 1024 : 0;
}

int run_doctor(const DoctorOptions& options, const Common& common) {
  const auto style = output_style(common);
  if (options.list_checks) {
    print(show::list_checks(style));
    return kOk;
  }
  const auto choice = choice_of(options);
  if (!choice) return report(choice.error());
  const auto start = std::chrono::steady_clock::now();
  auto examined = examine(options.examination);
  if (!examined) return report(examined.error());
  show::DoctorReport shown;
  shown.diagnosis = doctor::diagnose(examined->machine, *choice);
  shown.machine = std::move(examined->machine);
  shown.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  shown.peak_memory_bytes = own_peak_memory();
  print(drawn(options, shown, style));
  if (!options.save.empty()) {
    if (const auto saved = doctor::save_raw(examined->raw, options.save); !saved) return report(saved.error());
    fmt::print(stderr, "saved to {}/machine.yaml\n", options.save);
  }
  if (!options.bundle.empty()) {
    if (const auto written = write_bundle(options.bundle, *examined, shown); !written) return report(written.error());
    fmt::print(stderr, "wrote {}\n", options.bundle);
  }
  return exit_code(options, shown);
}

}  // namespace

void add_doctor(CLI::App& app, const Common& common, int& result) {
  auto* command = app.add_subcommand("doctor", "Looks at the five layers, names the root cause and the remedy");
  const auto options = std::make_shared<DoctorOptions>();
  options->examination.add_to(*command);
  auto* json = command->add_flag("--json", options->json, "Machine-readable report (docs/doctor.schema.json)");
  auto* markdown = command->add_flag("--markdown", options->markdown, "Report for a bug tracker");
  auto* html = command->add_flag("--html", options->html, "Report as one HTML page");
  json->excludes(markdown)->excludes(html);
  markdown->excludes(html);
  command->add_flag("-v,--verbose", options->verbose, "All evidence, and why checks were skipped");
  command->add_flag("--list-checks", options->list_checks, "List all checks and end");
  command->add_option("--only", options->only, "Run only these checks: ids, their beginnings, or layers")
      ->delimiter(',');
  command->add_option("--skip", options->skip, "Leave these checks out")->delimiter(',');
  command->add_option("--fail-on", options->fail_on, "Exit with 1 from this severity on: error, warning, note, never")
      ->check(CLI::IsMember({"error", "warning", "note", "never"}))
      ->capture_default_str();
  command->add_flag("--require-gpu", options->require_gpu, "Exit with 3 where there is no NVIDIA GPU");
  command->add_option("--save", options->save, "Write the examined machine to this new folder; --from replays it");
  command->add_option("--bundle", options->bundle, "Write a redacted archive (.tar.gz) for a bug report");
  command->callback([options, &common, &result] { result = run_doctor(*options, common); });
}

}  // namespace fullwatt::cli
