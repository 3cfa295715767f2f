#include "fullwatt/show/words.hpp"

#include <algorithm>

#include "fullwatt/base/text.hpp"

namespace fullwatt::show {
namespace {

bool is_placeholder_name(std::string_view name) {
  const auto allowed = [](unsigned char c) { return (c >= 'a' && c <= 'z') || c == '_'; };
  return !name.empty() && std::ranges::all_of(name, allowed);
}

std::string placeholder(std::string_view name) {
  return '<' + std::string(name) + '>';
}

/// `quote` gets the value, its name and the text in front of it.
template <class Quote>
std::string fill_with(std::string_view text, const Facts& facts, Quote quote) {
  std::string out;
  while (!text.empty()) {
    const auto open = text.find('{');
    const auto close = open == std::string_view::npos ? open : text.find('}', open);
    if (close == std::string_view::npos) break;
    out += text.substr(0, open);
    const auto name = text.substr(open + 1, close - open - 1);
    if (!is_placeholder_name(name)) {
      out += text.substr(open, close - open + 1);
    } else if (const auto fact = facts.find(std::string(name)); fact != facts.end()) {
      out += quote(base::printable(fact->second, 300), name, out);
    } else {
      out += placeholder(name);
    }
    text.remove_prefix(close + 1);
  }
  return out.append(text);
}

/// Whether the shell, having read this much of a command, is inside quotes.
bool ends_inside_quotes(std::string_view command) {
  char quote = '\0';
  for (std::size_t i = 0; i < command.size(); ++i) {
    const char c = command[i];
    if (c == '\\' && quote != '\'') {
      ++i;
    } else if (quote != '\0') {
      if (c == quote) quote = '\0';
    } else if (c == '\'' || c == '"') {
      quote = c;
    }
  }
  return quote != '\0';
}

/// Inside quotes of the command itself a value cannot be quoted once more: one that is not plain stays a placeholder.
std::string shell_quoted(const std::string& value, std::string_view name, std::string_view before) {
  auto word = base::shell_word(value);
  return word != value && ends_inside_quotes(before) ? placeholder(name) : word;
}

}  // namespace

std::string fill(std::string_view text, const Facts& facts) {
  return fill_with(text, facts, [](const std::string& value, std::string_view, std::string_view) { return value; });
}

std::string fill_command(std::string_view command, const Facts& facts) {
  return fill_with(command, facts, shell_quoted);
}

Rendered render(const model::Finding& finding, Language language) {
  const auto* entry = catalog::find(finding.id);
  if (entry == nullptr) return {base::printable(finding.id), {}, {}};
  Rendered rendered;
  rendered.title = fill(entry->title.in(language), finding.facts);
  rendered.cause = fill(entry->cause.in(language), finding.facts);
  for (const auto& step : entry->remedy) {
    rendered.remedy.push_back({fill(step.text.in(language), finding.facts), fill_command(step.run, finding.facts)});
  }
  return rendered;
}

}  // namespace fullwatt::show
