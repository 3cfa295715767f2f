#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "catalog/catalog.hpp"

#include "fullwatt/model/finding.hpp"

namespace fullwatt::show {

using catalog::Language;
using Facts = std::map<std::string, std::string>;

/// Fills the placeholders of a text; one that has no fact becomes <name>.
std::string fill(std::string_view text, const Facts& facts);
/// The same for a shell command: a fact with other than plain characters is quoted, so that a path or a name from
/// outside cannot become a command; inside quotes of the command itself such a fact is left out.
std::string fill_command(std::string_view command, const Facts& facts);

struct RenderedStep {
  std::string text;
  std::string run;
};

/// A finding in words.
struct Rendered {
  std::string title;
  std::string cause;
  std::vector<RenderedStep> remedy;
};
Rendered render(const model::Finding& finding, Language language);

}  // namespace fullwatt::show
