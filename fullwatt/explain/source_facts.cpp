#include "fullwatt/explain/source_facts.hpp"

#include <algorithm>

#include "fullwatt/base/text.hpp"
#include "fullwatt/explain/lenient.hpp"

namespace fullwatt::explain {
namespace {

using lenient::Json;

int line_of(const Json& json, const char* name = "line") {
  return lenient::integer<int>(json, name).value_or(0);
}

/// Every object of a list, read by a function.
template <class T>
std::vector<T> list(const Json& file, const char* name, T (*read)(const Json&)) {
  std::vector<T> found;
  const auto& items = lenient::at(file, name);
  if (!items.is_array()) return found;
  for (const auto& item : items) {
    if (item.is_object()) found.push_back(read(item));
  }
  return found;
}

SourceFunction function(const Json& json) {
  return {lenient::text(json, "name"), lenient::text(json, "qualified"), line_of(json), line_of(json, "end_line"),
          lenient::texts(json, "decorators")};
}

SourceCall call(const Json& json) {
  return {.name = lenient::text(json, "name"),
          .line = line_of(json),
          .function = lenient::text(json, "function"),
          .keywords = lenient::values(json, "keywords"),
          .in_loop = lenient::flag(json, "in_loop").value_or(false)};
}

SourceAssignment assignment(const Json& json) {
  return {lenient::text(json, "target"), lenient::text(json, "value"), line_of(json), lenient::text(json, "function")};
}

SourceComparison comparison(const Json& json) {
  return {.what = lenient::text(json, "what"),
          .key = lenient::text(json, "key"),
          .literal = lenient::text(json, "literal"),
          .type = lenient::text(json, "type"),
          .line = line_of(json),
          .function = lenient::text(json, "function"),
          .converted = lenient::flag(json, "converted").value_or(false)};
}

SourceLoop loop(const Json& json) {
  return {.line = line_of(json),
          .end_line = line_of(json, "end_line"),
          .function = lenient::text(json, "function"),
          .depth = line_of(json, "depth"),
          .ranges = line_of(json, "ranges"),
          .writes = lenient::texts(json, "writes"),
          .trains = lenient::flag(json, "trains").value_or(false)};
}

SourceUse use(const Json& json) {
  return {lenient::text(json, "what"), line_of(json), lenient::flag(json, "in_loop").value_or(false)};
}

std::string key(const Json& json) {
  return lenient::text(json, "key");
}

std::string name(const Json& json) {
  return lenient::text(json, "name");
}

SourceFile file_of(const Json& json) {
  return {.path = lenient::text(json, "path"),
          .error = lenient::text(json, "error"),
          .functions = list<SourceFunction>(json, "functions", function),
          .calls = list<SourceCall>(json, "calls", call),
          .assignments = list<SourceAssignment>(json, "assignments", assignment),
          .comparisons = list<SourceComparison>(json, "comparisons", comparison),
          .truths = list<std::string>(json, "truths", key),
          .loops = list<SourceLoop>(json, "loops", loop),
          .uses = list<SourceUse>(json, "uses", use),
          .loaders = list<SourceCall>(json, "loaders", call),
          .fields = list<std::string>(json, "fields", name),
          .references = lenient::texts(json, "references")};
}

}  // namespace

const SourceFunction* SourceFile::function_at(int line) const {
  const SourceFunction* innermost = nullptr;
  for (const auto& candidate : functions) {
    if (line < candidate.line || line > candidate.end_line) continue;
    if (innermost == nullptr || candidate.line >= innermost->line) innermost = &candidate;
  }
  return innermost;
}

const SourceFile* SourceFacts::file(std::string_view path) const {
  const auto at = std::ranges::find(files, path, &SourceFile::path);
  if (at != files.end()) return &*at;
  const SourceFile* same_name = nullptr;
  for (const auto& candidate : files) {
    if (base::file_name(candidate.path) != base::file_name(path)) continue;
    if (same_name != nullptr) return nullptr;
    same_name = &candidate;
  }
  return same_name;
}

bool SourceFacts::referenced(std::string_view wanted) const {
  return std::ranges::any_of(files, [&](const SourceFile& source) {
    return std::ranges::find(source.references, wanted) != source.references.end();
  });
}

model::Site set_at(const SourceFacts& source, std::initializer_list<std::string_view> names) {
  const auto named = [&](std::string_view found) {
    return std::ranges::any_of(names, [&](std::string_view wanted) {
      return found.ends_with(wanted) &&
             (found.size() == wanted.size() || found[found.size() - wanted.size() - 1] == '.');
    });
  };
  model::Site last;
  for (const auto& file : source.files) {
    for (const auto& assignment : file.assignments) {
      if (named(assignment.target)) last = {file.path, assignment.line, assignment.function};
    }
    for (const auto& call : file.calls) {
      if (named(call.name)) last = {file.path, call.line, call.function};
    }
  }
  return last;
}

SourceFacts parse_source_facts(const std::string& text) {
  const auto json = Json::parse(text, nullptr, false);
  SourceFacts facts;
  if (json.is_object()) facts.files = list<SourceFile>(json, "files", file_of);
  return facts;
}

std::string source_line(const model::Run& run, const model::Site& site) {
  const auto source = run.sources.find(site.file);
  if (source == run.sources.end() || site.line < 1) return {};
  const auto lines = base::lines(source->second);
  const auto index = static_cast<std::size_t>(site.line - 1);
  return index < lines.size() ? std::string(base::trim(lines[index])) : std::string();
}

}  // namespace fullwatt::explain
