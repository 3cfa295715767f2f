#include "fullwatt/doctor/select.hpp"

#include <memory>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/cli/command.hpp"
#include "fullwatt/cli/examination.hpp"
#include "fullwatt/show/select.hpp"

namespace fullwatt::cli {
namespace {

struct SelectOptions {
  ExaminationOptions examination;
  bool json = false;
  bool shell_export = false;
};

int run_select(const SelectOptions& options, const Common& common) {
  const auto examined = examine(options.examination);
  if (!examined) return report(examined.error());
  const auto selection = doctor::select_gpu(examined->machine);
  if (options.shell_export) {
    print(doctor::export_lines(selection));
    fmt::print(stderr, "{}\n", base::printable(selection.reason, 400));
  } else if (options.json) {
    print(model::dump(show::select_json(selection), 2) + "\n");
  } else {
    print(show::select_text(selection, output_style(common)));
  }
  return selection.selected() != nullptr ? kOk : kNotExamined;
}

}  // namespace

void add_select(CLI::App& app, const Common& common, int& result) {
  auto* command = app.add_subcommand("select", "Says which GPU to train on, and why");
  const auto options = std::make_shared<SelectOptions>();
  options->examination.add_to(*command);
  auto* json = command->add_flag("--json", options->json, "Machine-readable answer");
  command->add_flag("--export", options->shell_export, "Lines for a shell: eval \"$(fullwatt select --export)\"")
      ->excludes(json);
  command->callback([options, &common, &result] { result = run_select(*options, common); });
}

}  // namespace fullwatt::cli
