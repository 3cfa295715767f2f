#include "fullwatt/tune/source_patch.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include <fmt/format.h>

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
    if (file.empty()) return false;
    auto known = files_.find(file);
    if (known == files_.end()) {
      const auto text = read_(file);
      if (!text) return false;
      known = files_.emplace(file, SourcePatch{file, *text, *text}).first;
    }
    auto changed = make(known->second.after);
    if (!changed) return false;
    known->second.after = *std::move(changed);
    return true;
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
};

void for_loader(const model::PlannedFix& fix, const explain::ProcessFacts& facts, std::vector<ArgumentEdit>& edits) {
  const auto* loader = facts.training_loader();
  if (loader == nullptr) return;
  const auto add = [&](const char* keyword, const std::string& value) {
    edits.push_back({fix.id, loader->site, "DataLoader", keyword, value});
  };
  const auto setting = [&](const char* name) { return fix.settings.contains(name) ? fix.settings.at(name) : ""; };
  if (fix.id == "loader-workers") add("num_workers", setting("count"));
  if (fix.id == "loader-prefetch") add("prefetch_factor", setting("factor"));
  if (fix.id == "loader-persistent") add("persistent_workers", "True");
  if (fix.id == "loader-pinned") add("pin_memory", "True");
}

void for_optimizers(const model::PlannedFix& fix, const explain::ProcessFacts& facts,
                    std::vector<ArgumentEdit>& edits) {
  if (fix.id != "fused-optimizer") return;
  for (const auto& optimizer : facts.optimizers) {
    if (optimizer.fused != true) edits.push_back({fix.id, optimizer.site, optimizer.class_name, "fused", "True"});
  }
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

PatchedSource patch_source(const model::Plan& plan, const explain::ProcessFacts& facts, const std::string& script,
                           const ReadSource& read) {
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
    if (sources.change(edit.site.file, change)) written(edit.fix);
  }
  std::string statements;
  std::vector<std::string> set;
  for (const auto& fix : plan.fixes) {
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
