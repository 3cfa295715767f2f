#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fullwatt/base/error.hpp"
#include "fullwatt/explain/facts.hpp"
#include "fullwatt/model/explanation.hpp"
#include "fullwatt/model/plan.hpp"

/// The fixes of a plan, written into the user's own files where a line for them is certain: arguments of loaders and
/// optimisers at the places where the program makes them, or in the configuration file that they come from; settings of
/// torch below the imports of the script.
namespace fullwatt::tune {

struct SourcePatch {
  std::string file;
  std::string before;
  std::string after;
};

struct PatchedSource {
  std::vector<SourcePatch> files;
  std::vector<std::string> written;  ///< fixes that are in them
};

using ReadSource = std::function<std::optional<std::string>(const std::string& file)>;
/// What a file holds; nothing where it cannot be read.
std::optional<std::string> read_source(const std::string& file);

/// What is known of the program as it is.
struct PlainProgram {
  const explain::ProcessFacts& facts;
  const std::vector<model::SettingRow>& settings;  ///< what its configuration says, beside what is in force
  std::string script;                              ///< its main file; empty where it is not known
};
PatchedSource patch_source(const model::Plan& plan, const PlainProgram& program, const ReadSource& read);

/// Replaces the file, and keeps the original beside it; gives the original's new name. Fails where the file is no
/// longer what the patch was made for.
base::Result<std::string> write_patch(const SourcePatch& patch);

}  // namespace fullwatt::tune
