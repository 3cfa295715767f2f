#include "fullwatt/tune/source_patch.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/tune/config_source.hpp"
#include "fullwatt/tune/python_source.hpp"

namespace fullwatt::tune {
namespace {

namespace fs = std::filesystem;

/// The files as they were and as they are by now.
class Sources {
 public:
  explicit Sources(const ReadSource& read) : read_(read) {}

  using Change = std::function<std::optional<std::string>(const std::string& source)>;
  /// Whether the change could be made.
  bool change(const std::string& file, const Change& make) {
    auto changed = look(file, make);
    if (!changed) return false;
    files_.at(file).after = *std::move(changed);
    return true;
  }
  /// What is found in the file as it is by now; nothing where it cannot be read.
  std::optional<std::string> look(const std::string& file, const Change& find) {
    if (file.empty()) return std::nullopt;
    auto known = files_.find(file);
    if (known == files_.end()) {
      const auto text = read_(file);
      if (!text) return std::nullopt;
      known = files_.emplace(file, SourcePatch{file, *text, *text}).first;
    }
    return find(known->second.after);
  }
  std::vector<SourcePatch> changed() const {
    std::vector<SourcePatch> found;
    for (const auto& [file, patch] : files_) {
      if (patch.before != patch.after) found.push_back(patch);
    }
    return found;
  }

 private:
  const ReadSource& read_;
  std::map<std::string, SourcePatch> files_;
};

/// An argument that a call of the program is to get.
struct ArgumentEdit {
  std::string fix;
  model::Site site;
  std::string callee;
  std::string keyword;
  std::string value;
  std::string setting;  ///< its name where configurations are compared; empty when that has none
};

void for_loader(const model::PlannedFix& fix, const explain::ProcessFacts& facts, std::vector<ArgumentEdit>& edits) {
  const auto* loader = facts.training_loader();
  if (loader == nullptr) return;
  const auto add = [&](const char* keyword, const std::string& value) {
    edits.push_back({fix.id, loader->site, "DataLoader", keyword, value, std::string("loader.") + keyword});
  };
  const auto setting = [&](const char* name) { return fix.settings.contains(name) ? fix.settings.at(name) : ""; };
  if (fix.id == "loader-workers") add("num_workers", setting("count"));
  if (fix.id == "loader-prefetch") add("prefetch_factor", setting("factor"));
  if (fix.id == "loader-persistent" || setting("persistent") == "true") add("persistent_workers", "True");
  if (fix.id == "loader-pinned" || setting("pinned") == "true") add("pin_memory", "True");
}

void for_optimizers(const model::PlannedFix& fix, const explain::ProcessFacts& facts,
                    std::vector<ArgumentEdit>& edits) {
  if (fix.id != "fused-optimizer") return;
  for (const auto& optimizer : facts.optimizers) {
    if (optimizer.fused != true) edits.push_back({fix.id, optimizer.site, optimizer.class_name, "fused", "True", ""});
  }
}

/// True, False, a number: what a program does not read from elsewhere.
bool is_literal(std::string_view text) {
  return text == "True" || text == "False" || text == "None" || base::number<long>(text).has_value();
}

/// A value as the configuration file writes it: `true` for Python's True where it has `false`.
std::string as_written(const std::string& value, const std::string& before) {
  const bool python = before == "True" || before == "False";
  return value == "True" && !python ? "true" : value;
}

/// The file and the line that a row names, among the files that the program opened; nothing when it names an argument,
/// or when two files have that name.
std::optional<model::Site> place_of(const model::SettingRow& row, const explain::ProcessFacts& facts) {
  const auto colon = row.declared_at.rfind(':');
  const auto line = colon != std::string::npos ? base::number<int>(row.declared_at.substr(colon + 1)) : std::nullopt;
  if (!line) return std::nullopt;
  std::optional<model::Site> found;
  for (const auto& file : facts.config_files) {
    if (base::file_name(file.path) != row.declared_at.substr(0, colon)) continue;
    if (found && found->file != file.path) return std::nullopt;
    found = model::Site{file.path, *line, ""};
  }
  return found;
}

/// Changes the configuration file that an argument comes from: the program reads it from there, and what it read is in
/// force.
bool in_config(Sources& sources, const ArgumentEdit& edit, const PlainProgram& program) {
  const auto given = sources.look(edit.site.file, [&](const std::string& source) {
    return argument_of(source, edit.site.line, edit.callee, edit.keyword);
  });
  if (!given || is_literal(*given) || edit.setting.empty()) return false;
  for (const auto& row : program.settings) {
    if (row.name != edit.setting || row.differs || row.in_force.empty()) continue;
    const auto place = place_of(row, program.facts);
    if (!place) continue;
    return sources.change(place->file, [&](const std::string& text) {
      return with_config_value(text, place->line, row.declared, as_written(edit.value, row.declared));
    });
  }
  return false;
}

/// A setting of torch as a whole.
struct Setting {
  std::string attribute;  ///< what a line that sets it otherwise assigns to
  std::string statement;
};

std::vector<Setting> settings_of(const model::PlannedFix& fix) {
  if (fix.id == "cudnn-benchmark") return {{"cudnn.benchmark", "torch.backends.cudnn.benchmark = True\n"}};
  if (fix.id == "tf32") {
    return {{"cuda.matmul.allow_tf32", "torch.backends.cuda.matmul.allow_tf32 = True\n"},
            {"cudnn.allow_tf32", "torch.backends.cudnn.allow_tf32 = True\n"}};
  }
  if (fix.id == "threads" && fix.settings.contains("count"))
    return {{"", fmt::format("torch.set_num_threads({})\n", fix.settings.at("count"))}};
  return {};
}

/// Whether a line of the script set it otherwise and is corrected now.
bool correct(Sources& sources, const std::string& script, const Setting& setting) {
  if (setting.attribute.empty()) return false;
  return sources.change(script, [&](const std::string& source) {
    const auto lines = static_cast<int>(std::ranges::count(source, '\n')) + 1;
    std::optional<std::string> changed;
    for (int line = 1; line <= lines && !changed; ++line)
      changed = with_assignment(source, line, setting.attribute, "True");
    return changed;
  });
}

/// Every call in the script whose argument says what a fix takes back; one without a keyword is the first.
struct CallEdit {
  std::string_view fix;
  std::string_view callee;
  std::string_view keyword;
  std::string_view before;
  std::string_view after;
};
constexpr CallEdit kCallEdits[] = {{"gradients-to-none", "zero_grad", "set_to_none", "False", "True"},
                                   {"anomaly-off", "set_detect_anomaly", "", "True", "False"},
                                   {"anomaly-off", "set_detect_anomaly", "mode", "True", "False"}};

bool change_calls(Sources& sources, const std::string& script, const CallEdit& edit) {
  return sources.change(script, [&](const std::string& source) {
    const auto lines = static_cast<int>(std::ranges::count(source, '\n')) + 1;
    std::optional<std::string> changed;
    for (int line = 1; line <= lines; ++line) {
      const auto& now = changed ? *changed : source;
      if (argument_of(now, line, edit.callee, edit.keyword) == edit.before)
        changed = with_argument(now, line, edit.callee, edit.keyword, edit.after);
    }
    return changed;
  });
}

/// A name beside the file that is free.
std::string backup_name(const std::string& path) {
  auto name = path + ".orig";
  for (int i = 1; fs::exists(name); ++i) name = fmt::format("{}.orig{}", path, i);
  return name;
}

}  // namespace

std::optional<std::string> read_source(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return stream ? std::optional(text.str()) : std::nullopt;
}

PatchedSource patch_source(const model::Plan& plan, const PlainProgram& program, const ReadSource& read) {
  const auto& [facts, settings, script] = program;
  Sources sources(read);
  PatchedSource patched;
  std::vector<ArgumentEdit> edits;
  for (const auto& fix : plan.fixes) {
    for_loader(fix, facts, edits);
    for_optimizers(fix, facts, edits);
  }
  const auto written = [&](const std::string& fix) {
    if (std::ranges::find(patched.written, fix) == patched.written.end()) patched.written.push_back(fix);
  };
  // From the bottom up: lines are those of the program as it ran, and a change moves those below it.
  std::ranges::stable_sort(edits, std::ranges::greater(), [](const auto& edit) { return edit.site.line; });
  for (const auto& edit : edits) {
    const auto change = [&](const std::string& source) {
      return with_argument(source, edit.site.line, edit.callee, edit.keyword, edit.value);
    };
    if (in_config(sources, edit, program) || sources.change(edit.site.file, change)) written(edit.fix);
  }
  std::string statements;
  std::vector<std::string> set;
  for (const auto& fix : plan.fixes) {
    for (const auto& edit : kCallEdits) {
      if (edit.fix == fix.id && change_calls(sources, script, edit)) written(fix.id);
    }
    for (const auto& setting : settings_of(fix)) {
      if (!correct(sources, script, setting)) statements += setting.statement;
      set.push_back(fix.id);
    }
  }
  const auto add = [&](const std::string& source) { return below_imports(source, statements); };
  if (statements.empty() || sources.change(script, add)) std::ranges::for_each(set, written);
  patched.files = sources.changed();
  return patched;
}

base::Result<std::string> write_patch(const SourcePatch& patch) {
  if (read_source(patch.file) != patch.before)
    return base::fail(base::Error::Kind::unavailable, patch.file + " has changed meanwhile; it is left as it is",
                      "Run the command again.");
  auto backup = backup_name(patch.file);
  std::error_code error;
  fs::copy_file(patch.file, backup, error);
  if (error)
    return base::fail(base::Error::Kind::unavailable, fmt::format("{} cannot be written: {}", backup, error.message()),
                      "Nothing was changed. Apply the difference by hand.");
  std::ofstream file(patch.file, std::ios::binary | std::ios::trunc);
  file << patch.after;
  if (!file.flush())
    return base::fail(base::Error::Kind::unavailable, patch.file + " cannot be written",
                      fmt::format("The original is {}.", backup));
  return backup;
}

}  // namespace fullwatt::tune
