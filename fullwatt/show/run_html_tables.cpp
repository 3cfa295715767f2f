#include <algorithm>

#include <fmt/format.h>

#include "fullwatt/show/html.hpp"
#include "fullwatt/show/numbers.hpp"
#include "fullwatt/show/run_html_parts.hpp"
#include "fullwatt/show/run_words.hpp"

namespace fullwatt::show::html_parts {
namespace {

/// Column heads; those that start with '#' stand over numbers.
std::string table_start(const Report& report, std::string_view css, const std::vector<std::string_view>& heads) {
  auto out = fmt::format("<div class=\"scroll\"><table class=\"{}\">\n<thead><tr>", css);
  for (auto head : heads) {
    const bool number = head.starts_with('#');
    if (number) head.remove_prefix(1);
    out += fmt::format("<th scope=\"col\"{}>{}</th>", number ? " class=\"n\"" : "", report.say(head));
  }
  return out + "</tr></thead>\n<tbody>\n";
}

constexpr std::string_view kTableEnd = "</tbody></table></div>\n";

std::string meter(double share, std::string_view css) {
  return fmt::format(
      "<svg class=\"meter {}\" width=\"100%\" height=\"10\" aria-hidden=\"true\"><rect class=\"empty\" width=\"100%\" "
      "height=\"10\" rx=\"5\"/><rect width=\"{:.1f}%\" height=\"10\" rx=\"5\" fill=\"currentColor\"/></svg>",
      css, share_of(share, 1) * 100);
}

std::string_view use_class(std::string_view resource, double share) {
  if (!is_rated(resource)) return "plain";
  return share >= kWellUsed ? "works" : share >= kHardlyUsed ? "degraded" : "broken";
}

std::string gauge_row(const Report& report, const model::ResourceUse& use) {
  const auto name = html_escaped(label_or("resource-", use.id, report.language()));
  const auto unit = html_escaped(use.unit);
  if (!use.used)
    return fmt::format("<div class=\"gauge\"><dt>{}</dt><dd class=\"soft\">– {}</dd></div>\n", name,
                       html_escaped(use.reason));
  if (!use.limit)
    return fmt::format("<div class=\"gauge\"><dt>{}</dt><dd><b>{} {}</b></dd></div>\n", name, figure(*use.used), unit);
  const auto share = *use.used / *use.limit;
  return fmt::format("<div class=\"gauge\"><dt>{}</dt><dd>{}<b>{}</b> <span>{}</span>{}</dd></div>\n", name,
                     meter(share, use_class(use.id, share)), html_escaped(percent(share)),
                     use.unit == "%" ? std::string{}
                                     : report.say("run_of", {{"value", figure(*use.used)},
                                                             {"limit", figure(*use.limit) + " " + use.unit}}),
                     use.source.empty() ? "" : " <small class=\"soft\">" + html_escaped(use.source) + "</small>");
}

std::string value_cell(const std::string& value, const std::string& place) {
  if (value.empty()) return "<td class=\"soft\">–</td>";
  return fmt::format("<td><code>{}</code>{}</td>", html_escaped(value),
                     place.empty() ? "" : " <small class=\"soft\">" + html_escaped(place) + "</small>");
}

std::string setting_row(const model::SettingRow& row) {
  return fmt::format("<tr{}><th scope=\"row\"><code>{}</code></th>{}{}<td>{}</td></tr>\n",
                     row.differs ? " class=\"differs\"" : "", html_escaped(row.name),
                     value_cell(row.declared, row.declared_at), value_cell(row.in_force, row.in_force_at),
                     html_escaped(row.remark));
}

}  // namespace

std::string resources(const Report& report) {
  if (report.explanation().resources.empty()) return {};
  auto out = heading(report, "resources", "run_resources") + "<dl class=\"gauges\">\n";
  for (const auto& use : report.explanation().resources) out += gauge_row(report, use);
  return out + "</dl>\n";
}

std::string kernels(const Report& report) {
  const auto& groups = report.explanation().kernels;
  if (groups.empty()) return {};
  double whole = 0;
  double largest = 0;
  for (const auto& group : groups) {
    whole += group.ms;
    largest = std::max(largest, group.ms);
  }
  auto out =
      heading(report, "kernels", "run_kernels") + table_start(report, "kernels",
                                                              {"run_kind", "run_precision", "run_tensor_cores",
                                                               "#run_ms", "#run_share", "#run_count", "run_example"});
  for (const auto& group : groups) {
    const auto kind = kind_class("gpu-" + group.kind);
    out += fmt::format(
        "<tr><th scope=\"row\"><i class=\"swatch {}\"></i>{}</th><td>{}</td><td{}>{}</td><td class=\"n\">{}</td>"
        "<td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"name\"><code title=\"{}\">{}</code></td></tr>\n",
        kind, report.say("gpu-" + group.kind), group.precision.empty() ? "–" : html_escaped(group.precision),
        group.tensor_cores ? " class=\"works\"" : " class=\"soft\"",
        report.say(group.tensor_cores ? "run_yes" : "run_no"), fixed(group.ms, decimals_for(whole)),
        html_escaped(percent(share_of(group.ms, whole))), figure(group.count), html_escaped(group.example),
        html_escaped(group.example));
  }
  return out + std::string(kTableEnd);
}

std::string fixes(const Report& report) {
  const auto& rows = report.explanation().fixes;
  if (rows.empty()) return {};
  auto out =
      heading(report, "fixes", "run_fixes") + table_start(report, "settings", {"run_fix", "run_state", "run_remark"});
  for (const auto& fix : rows) {
    out += fmt::format("<tr><th scope=\"row\">{}</th><td{}>{}</td><td>{}</td></tr>\n", html_escaped(fix.id),
                       fix.state == "in-force" ? " class=\"works\"" : "",
                       html_escaped(label_or("fix-", fix.state, report.language())),
                       html_escaped(fix_remark(fix, report.language())));
  }
  return out + std::string(kTableEnd);
}

std::string settings(const Report& report) {
  const auto& rows = report.explanation().settings;
  if (rows.empty()) return {};
  const auto start = table_start(report, "settings", {"run_setting", "run_declared", "run_in_force", "run_remark"});
  std::string differing;
  std::string same;
  for (const auto& row : rows) (row.differs ? differing : same) += setting_row(row);
  auto out = heading(report, "settings", "run_settings");
  if (!differing.empty()) out += start + differing + std::string(kTableEnd);
  if (!same.empty()) {
    const auto count = std::ranges::count(rows, false, &model::SettingRow::differs);
    out += fmt::format("<details><summary>{}</summary>\n{}{}{}</details>\n",
                       report.say("run_settings_same", {{"count", std::to_string(count)}}), start, same, kTableEnd);
  }
  return out;
}

std::string between(const Report& report) {
  if (report.explanation().between.empty()) return {};
  auto out = heading(report, "between", "run_between") + "<dl class=\"gauges\">\n";
  for (const auto& part : report.explanation().between)
    out +=
        fmt::format("<div class=\"gauge\"><dt>{}</dt><dd>{}<b>{}</b> <span>{}</span></dd></div>\n", report.say(part.id),
                    meter(part.share, "plain"), html_escaped(percent(part.share)), duration(part.seconds));
  return out + "</dl>\n";
}

std::string ranks(const Report& report) {
  if (report.explanation().ranks.size() < 2) return {};
  const auto decimals = decimals_for(report.step_ms());
  auto out = heading(report, "ranks", "run_ranks") +
             table_start(report, "ranks", {"#rank", "#run_ms", "#run_data_ms", "#run_busy_ms", "#pid"});
  for (const auto& rank : report.explanation().ranks)
    out += fmt::format(
        "<tr><th scope=\"row\" class=\"n\">{}</th><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>"
        "<td class=\"n soft\">{}</td></tr>\n",
        rank.rank, fixed(rank.step_ms, decimals), fixed(rank.data_ms, decimals), fixed(rank.busy_ms, decimals),
        rank.pid);
  return out + std::string(kTableEnd);
}

std::string facts(const Report& report) {
  auto out = heading(report, "facts", "run_facts") + "<dl class=\"facts\">\n";
  for (const auto& [name, value] : run_facts(report.explanation(), report.language()))
    out += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", html_escaped(name), html_escaped(value));
  return out + "</dl>\n";
}

}  // namespace fullwatt::show::html_parts
