#include "fullwatt/show/explain.hpp"

#include <memory>

#include <fmt/format.h>

#include "fullwatt/cli/command.hpp"

namespace fullwatt::cli {
namespace {

int run_explain(const std::string& id, const Common& common) {
  if (const auto* entry = catalog::find(id)) {
    print(show::explain_text(*entry, output_style(common)));
    return kOk;
  }
  const auto near = catalog::nearest(id);
  return report(
      {base::Error::Kind::bad_input, fmt::format("nothing is known by the id '{}'", id),
       near.empty() ? "List all ids with: fullwatt doctor --list-checks" : fmt::format("Did you mean '{}'?", near)});
}

}  // namespace

void add_explain(CLI::App& app, const Common& common, int& result) {
  auto* command = app.add_subcommand("explain", "Everything known about one finding, offline");
  const auto id = std::make_shared<std::string>();
  command->add_option("id", *id, "An id such as torch-cpu-wheel")->required();
  command->callback([id, &common, &result] { result = run_explain(*id, common); });
}

}  // namespace fullwatt::cli
