#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fullwatt/model/explanation.hpp"
#include "fullwatt/show/words.hpp"

/// The sections of a run's HTML report. Each returns HTML, empty where there is nothing to show.
namespace fullwatt::show::html_parts {

using Sources = std::map<std::string, std::string>;

/// What every section needs: the run, its words, and which lines of source the page holds.
class Report {
 public:
  Report(const model::Explanation& explanation, const Sources& sources, Language language);

  const model::Explanation& explanation() const { return explanation_; }
  Language language() const { return language_; }
  double step_ms() const { return step_ms_; }
  /// Files that the page shows, the most expensive first.
  const std::vector<std::string>& files() const { return files_; }
  const std::string& source(const std::string& file) const { return sources_.at(file); }

  /// Words of the catalogue, escaped; the second form fills placeholders.
  std::string say(std::string_view key) const;
  std::string say(std::string_view key, const Facts& facts) const;
  /// "train.py:41", a link where the page holds that line.
  std::string place(std::string_view file, int line) const;
  /// The anchor of a finding: its rank, since an id may stand twice; empty when there is none of that id.
  std::string anchor(const model::Finding& finding) const;
  std::string anchor(std::string_view finding_id) const;
  /// The anchor of a line; empty when the page does not hold it.
  std::string anchor(std::string_view file, int line) const;

 private:
  const model::Explanation& explanation_;
  const Sources& sources_;
  Language language_;
  double step_ms_;
  std::vector<std::string> files_;
};

/// The class that gives a part of a step its colour, the same all over the page.
std::string kind_class(std::string_view id);

/// Whether a text has room in a bar that takes this share of the page; one that has none is better left out than cut.
bool fits(std::string_view text, double share);

/// Bars from this share of the page on are set off from their neighbours; an edge would hide a narrower one.
constexpr double kEdge = 0.006;

/// "<h2 id=…>…</h2>": a section's start.
std::string heading(const Report& report, std::string_view id, std::string_view label);

std::string step(const Report& report);
std::string waterfall(const Report& report);
std::string findings(const Report& report);
std::string course(const Report& report);
std::string resources(const Report& report);
std::string kernels(const Report& report);
std::string fixes(const Report& report);
std::string settings(const Report& report);
std::string between(const Report& report);
std::string ranks(const Report& report);
std::string facts(const Report& report);
std::string source(const Report& report);

extern const std::string_view kStyle;
extern const std::string_view kScript;

}  // namespace fullwatt::show::html_parts
