#include "fullwatt/show/explain.hpp"

#include <memory>

#include "catalog/fixes.hpp"
#include <fmt/format.h>

#include "fullwatt/cli/command.hpp"

namespace fullwatt::cli {
namespace {

int run_explain(const std::string& id, const Common& common) {
  if (const auto* entry = catalog::find(id)) {
    print(show::explain_text(*entry, output_style(common)));
    return kOk;
  }
  if (const auto* fix = catalog::find_fix(id)) {
    print(show::explain_text(*fix, output_style(common)));
    return kOk;
  }
  if (id == "fixes") {
    print(show::list_fixes(output_style(common)));
    return kOk;
  }
  const auto near = catalog::nearest(id).empty() ? catalog::nearest_fix(id) : catalog::nearest(id);
  return report({base::Error::Kind::bad_input, fmt::format("nothing is known by the id '{}'", id),
                 near.empty()
                     ? "List all ids with: fullwatt doctor --list-checks, those of fixes with: fullwatt explain fixes"
                     : fmt::format("Did you mean '{}'?", near)});
}

}  // namespace

void add_explain(CLI::App& app, const Common& common, int& result) {
  auto* command = app.add_subcommand("explain", "Everything known about one finding or fix, offline");
  const auto id = std::make_shared<std::string>();
  command->add_option("id", *id, "An id such as torch-cpu-wheel or bf16; 'fixes' lists the fixes")->required();
  command->callback([id, &common, &result] { result = run_explain(*id, common); });
}

}  // namespace fullwatt::cli
