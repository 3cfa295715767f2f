#include <filesystem>
#include <fstream>
#include <memory>

#include "catalog/fixes.hpp"
#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/cli/command.hpp"
#include "fullwatt/cli/run_report.hpp"
#include "fullwatt/cli/tune_folder.hpp"
#include "fullwatt/cli/tuner.hpp"
#include "fullwatt/show/tune_json.hpp"
#include "fullwatt/show/tune_text.hpp"
#include "fullwatt/tune/plan_file.hpp"
#include "fullwatt/tune/python_source.hpp"

namespace fullwatt::cli {
namespace {

/// The originals stay beside the files.
int write_source(const tune::PatchedSource& patched) {
  if (patched.files.empty()) fmt::print(stderr, "fullwatt: none of these fixes can be written into the source\n");
  for (const auto& patch : patched.files) {
    const auto backup = tune::write_patch(patch);
    if (!backup) return report(backup.error());
    fmt::print(stderr, "fullwatt: {} is changed; the original is {}\n", patch.file, *backup);
  }
  return kOk;
}

int run_tune(const TuneOptions& options, const Common& common) {
  const auto agent = find_agent(base::current_environment());
  if (!agent) return report(agent.error(), kNotExamined);
  const auto style = error_style(common);
  auto folder = TuneFolder::open(base::current_environment(), options);
  if (!folder) return report(folder.error(), kNotExamined);
  if (folder->kept() > 0)
    fmt::print(stderr, "fullwatt: goes on where it was cut off: {} starts are done (--anew begins again)\n",
               folder->kept());
  if (!folder->changed().empty())
    fmt::print(stderr, "fullwatt: begins again: {} has changed since an earlier tuning was cut off\n",
               base::printable(folder->changed()));
  listen_to_interrupts();
  Tuner tuner(options, *agent, style, folder->path());
  auto tuning = tuner.tune();
  const auto patched = tuner.in_source(tuning.plan);
  for (const auto& patch : patched.files)
    tuning.source.push_back({patch.file, tune::unified_diff(patch.file, patch.before, patch.after)});
  tuning.in_source = patched.written;
  if (const auto written = folder->finish(tuning, options.keep, output_style(common)); !written)
    report(written.error());
  print(options.json ? model::dump(show::tune_json(tuning), 2) + "\n" : show::tune_text(tuning, output_style(common)));
  fmt::print(stderr, "{}\n", page_of(folder->path()));
  if (options.write && !tuning.is_proved())
    fmt::print(stderr, "fullwatt: the source is left alone: there is no plan that is proved\n");
  if (!tuning.failure.empty()) return kNotExamined;
  if (tuning.plan.fixes.empty()) return kOk;
  std::ofstream file(options.output);
  auto evidence = show::evidence(tuning);
  evidence.insert(evidence.begin(), "made by: fullwatt tune -- " + base::printable(base::shell_line(options.command)));
  file << tune::plan_to_yaml(tuning.plan, evidence);
  if (!file.flush())
    return report(
        {base::Error::Kind::unavailable, options.output + " cannot be written", "Give another path with --output."});
  fmt::print(stderr, "fullwatt run --fix {} -- {}\n", base::shell_word(options.output),
             base::shell_line(options.command));
  return options.write && tuning.is_proved() ? write_source(patched) : kOk;
}

}  // namespace

void add_tune(CLI::App& app, const std::vector<std::string>& user_command, const Common& common, int& result) {
  auto* command = app.add_subcommand("tune", "Tries fixes on a training, keeps those that pay, and proves it");
  command->footer(
      "Example: fullwatt tune -- python train.py --epochs 3\n"
      "The program is started several times for some steps each. What it writes meanwhile is thrown away.");
  const auto options = std::make_shared<TuneOptions>();
  command->add_option("--output", options->output, "Where the plan goes")->capture_default_str();
  command->add_option("--seeds", options->seeds, "Pairs of starts of the proof")
      ->check(CLI::Range(5, 50))
      ->capture_default_str();
  command->add_option("--minutes", options->minutes, "Time for finding the plan")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("!--no-proof", options->proves, "Only find a plan; it is marked as not proved");
  command->add_flag("--json", options->json, "Machine-readable answer (docs/tune.schema.json)");
  command->add_flag("--write", options->write, "Change the program's own source, too; originals are kept");
  command->add_flag("--anew", options->anew, "Begin again, also where an earlier tuning was cut off");
  command->add_flag("--keep", options->keep, "Keep what each start recorded, for fullwatt report");
  command->add_flag("--exact", options->exact,
                    "Only fixes that keep the results, to the bit or to the order of additions");
  command->add_option("--allow", options->allow, "What may change the training itself: batch")
      ->check(CLI::IsMember({"batch"}));
  command->add_option("--skip", options->skip, "Fixes that are not wanted, such as compile");
  command->callback([options, &user_command, &common, &result] {
    options->command = user_command;
    if (options->command.empty()) {
      result = report({base::Error::Kind::bad_input, "there is nothing to tune",
                       "Give the command as you would type it: fullwatt tune -- python train.py"});
      return;
    }
    for (const auto& id : options->skip) {
      if (catalog::find_fix(id) != nullptr) continue;
      const auto near = catalog::nearest_fix(id);
      result =
          report({base::Error::Kind::bad_input, fmt::format("there is no fix '{}'", base::printable(id, 60)),
                  near.empty() ? "List them with: fullwatt explain fixes" : fmt::format("Did you mean '{}'?", near)});
      return;
    }
    result = run_tune(*options, common);
  });
}

}  // namespace fullwatt::cli
