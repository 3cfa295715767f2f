#include "fullwatt/show/tune_html.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/show/html.hpp"
#include "fullwatt/show/numbers.hpp"
#include "fullwatt/show/tune_words.hpp"
#include "fullwatt/show/version.hpp"

namespace fullwatt::show {
namespace {

using namespace tune_words;

constexpr std::string_view kStyle = R"css(
:root { --plain: #8d96a0; --plan: #0b7f73; }
@media (prefers-color-scheme: dark) { :root { --plain: #6e7681; --plan: #2bb5a5; } }
h1 { text-wrap: balance; line-height: 1.3; }
.tiles { display: flex; flex-wrap: wrap; gap: 1px; margin: 1.25rem 0; background: var(--line); border: 1px solid var(--line); border-radius: 8px; overflow: hidden; }
.tiles div { flex: 1 1 9rem; background: var(--page); padding: .85rem 1rem; } .tiles dt { font-size: .8125rem; color: var(--soft); }
.tiles dd { margin: 0; font-size: 1.5rem; font-weight: 600; font-variant-numeric: tabular-nums; }
.tiles small { display: block; font-size: .8125rem; font-weight: 400; color: var(--soft); min-height: 1.2em; }
.scroll { overflow-x: auto; }
table { width: 100%; border-collapse: collapse; font-size: .9375rem; }
th, td { padding: .35rem 1rem .35rem 0; border-top: 1px solid var(--line); text-align: left; vertical-align: top; }
thead th { border-top: 0; font-size: .8125rem; font-weight: 400; color: var(--soft); white-space: nowrap; } tbody th { font-weight: 400; min-width: 13rem; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
svg { display: block; width: 100%; } svg text { font-size: 12px; fill: var(--soft); }
.bars { min-width: 6rem; width: 30%; } .bars svg { height: 20px; }
.plain { fill: var(--plain); stroke: var(--plain); } .plan { fill: var(--plan); stroke: var(--plan); }
.losses { border: solid var(--line); border-width: 1px 0; } .scale { margin: 0; font-size: .75rem; color: var(--soft); }
.losses path { fill: none; stroke-width: 1px; vector-effect: non-scaling-stroke; stroke-linejoin: round; }
.losses .plain { stroke-width: 4px; opacity: .35; }
.key { display: flex; gap: 1.25rem; font-size: .875rem; color: var(--soft); margin: .5rem 0; }
.key i { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .45em; }
.key i.plain { background: var(--plain); } .key i.plan { background: var(--plan); }
pre.diff { white-space: pre; overflow-x: auto; } .add { color: var(--good); } .cut { color: var(--bad); }
)css";

std::string safe(std::string_view key, const Style& style, const Facts& facts = {}) {
  return html_escaped(say(key, style, facts));
}

std::string heading(std::string_view key, const Style& style) {
  return fmt::format("<h2>{}</h2>\n", safe(key, style));
}

std::string tile(const std::string& name, const std::string& value, const std::string& more) {
  return fmt::format("<div><dt>{}</dt><dd>{}<small>{}</small></dd></div>\n", html_escaped(name), html_escaped(value),
                     html_escaped(more));
}

std::string tiles(const model::Tuning& tuning, const Style& style) {
  std::string out = "<dl class=\"tiles\">\n";
  if (tuning.speed.pairs > 0)
    out += tile(say("tune_speed", style), factor(tuning.speed.speedup),
                fmt::format("{}–{}", factor(tuning.speed.low), factor(tuning.speed.high)));
  for (const auto& row : before_and_after(tuning, style))
    out += tile(row.name, row.after, say("tune_was", style, {{"value", row.before}}));
  return out + "</dl>\n";
}

/// Of an interval its end.
double expected_ms(const model::TriedFix& tried) {
  return tried.predicted.high_ms.value_or(tried.predicted.ms.value_or(0));
}

/// What was predicted above what was measured, as parts of the largest of all.
std::string gain_bars(const model::TriedFix& tried, double largest) {
  const auto bar = [&](double ms, int y, std::string_view kind) {
    return fmt::format("<rect class=\"{}\" x=\"0\" y=\"{}\" height=\"8\" width=\"{:.1f}%\"/>", kind, y,
                       100 * std::clamp(ms / largest, 0.0, 1.0));
  };
  return "<svg role=\"img\" aria-hidden=\"true\">" + bar(expected_ms(tried), 1, "plain") +
         bar(gain_ms(tried), 11, "plan") + "</svg>";
}

std::string key(const Style& style, std::string_view plain, std::string_view plan) {
  return fmt::format(
      "<p class=\"key\"><span><i class=\"plain\"></i>{}</span><span><i class=\"plan\"></i>{}</span></p>\n",
      safe(plain, style), safe(plan, style));
}

std::string kept(const model::Tuning& tuning, const Style& style) {
  const auto fixes = kept_by_gain(tuning);
  if (fixes.empty()) return {};
  double largest = 1e-9;
  for (const auto& tried : fixes) largest = std::max({largest, gain_ms(tried), expected_ms(tried)});
  auto out = heading("tune_kept", style) + key(style, "tune_expected", "tune_gained") +
             fmt::format("<div class=\"scroll\"><table><thead><tr><th>{}</th><th class=\"bars\">{}</th>",
                         safe("run_fix", style), safe("tune_gain", style));
  for (const auto* column :
       {"tune_expected", "tune_gained", "tune_speed", "tune_priority", "tune_more_watts", "tune_paid"})
    out += fmt::format("<th class=\"n\">{}</th>", safe(column, style));
  out += "</tr></thead><tbody>\n";
  for (const auto& tried : fixes) {
    const auto paid = tried.steps_to_pay();
    out += fmt::format("<tr><th><code>{}</code><br><small class=\"soft\">{}</small></th><td class=\"bars\">{}</td>",
                       html_escaped(tried.fix.id),
                       html_escaped(title_of(tried.fix.id, style) + (tried.caveat.empty() ? "" : "; " + tried.caveat)),
                       gain_bars(tried, largest));
    for (const auto& text :
         {predicted(tried.predicted, style), figure(gain_ms(tried)), factor(tried.speedup().value_or(1)),
          priority(tried, style),
          tried.before_watts && tried.after_watts ? fmt::format("{:+.0f}", *tried.after_watts - *tried.before_watts)
                                                  : std::string(),
          paid ? say("tune_paid_steps", style, {{"value", figure(std::ceil(*paid))}}) : std::string()})
      out += fmt::format("<td class=\"n\">{}</td>", html_escaped(text));
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string dropped(const model::Tuning& tuning, const Style& style) {
  std::string rows;
  for (const auto& tried : tuning.tried) {
    if (tried.kept) continue;
    rows +=
        fmt::format("<tr><th><code>{}</code></th><td class=\"n\">{}</td><td>{}</td></tr>\n", html_escaped(tried.fix.id),
                    tried.speedup() ? factor(*tried.speedup()) : "", html_escaped(tried.reason));
  }
  if (rows.empty()) return {};
  return heading("tune_not_kept", style) + "<div class=\"scroll\"><table><tbody>\n" + rows + "</tbody></table></div>\n";
}

/// The losses of all starts over the steps, in one drawing.
class LossChart {
 public:
  explicit LossChart(const std::vector<model::ProvedPair>& pairs) : pairs_(pairs) {
    for (const auto& pair : pairs) {
      for (const auto* losses : {&pair.losses_without, &pair.losses_with}) {
        for (const auto loss : *losses) {
          if (!std::isfinite(loss)) continue;
          low_ = std::min(low_, loss);
          high_ = std::max(high_, loss);
        }
        longest_ = std::max(longest_, losses->size());
      }
    }
  }

  std::string draw() const {
    if (longest_ < 2 || !(high_ > low_)) return {};
    auto out = fmt::format(
        "<p class=\"scale\">{:.4g}</p>\n<svg class=\"losses\" height=\"200\" viewBox=\"0 0 1000 1000\" "
        "preserveAspectRatio=\"none\" role=\"img\">\n",
        high_);
    for (const auto& pair : pairs_) out += line(pair.losses_without, "plain");
    for (const auto& pair : pairs_) out += line(pair.losses_with, "plan");
    return out + fmt::format("</svg>\n<p class=\"scale\">{:.4g}</p>\n", low_);
  }

 private:
  std::string line(const std::vector<double>& losses, std::string_view kind) const {
    std::string path;
    for (std::size_t i = 0; i < losses.size(); ++i) {
      if (!std::isfinite(losses[i])) continue;
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L",
                          1000.0 * static_cast<double>(i) / static_cast<double>(longest_ - 1),
                          1000 * (high_ - losses[i]) / (high_ - low_));
    }
    return fmt::format("<path class=\"{}\" d=\"{}\"/>\n", kind, path);
  }

  const std::vector<model::ProvedPair>& pairs_;
  double low_ = HUGE_VAL;
  double high_ = -HUGE_VAL;
  std::size_t longest_ = 0;
};

std::string proof(const model::Tuning& tuning, const Style& style) {
  if (tuning.speed.pairs == 0) return {};
  auto out =
      heading("tune_proof", style) + fmt::format("<p>{}</p>\n<p>{}</p>\n", html_escaped(speed(tuning.speed, style)),
                                                 html_escaped(loss(tuning.loss, style)));
  if (const auto chart = LossChart(tuning.pairs).draw(); !chart.empty())
    out += fmt::format("<h3>{}</h3>\n", safe("tune_losses", style)) + key(style, "tune_as_it_is", "tune_with_plan") +
           chart;
  out += fmt::format(
      "<div class=\"scroll\"><table><thead><tr><th>{}</th><th class=\"n\">{}</th><th class=\"n\">{}</th><th "
      "class=\"n\">{}</th></tr></thead><tbody>\n",
      safe("tune_seed", style), safe("tune_as_it_is", style), safe("tune_with_plan", style), safe("tune_speed", style));
  for (const auto& pair : tuning.pairs)
    out +=
        fmt::format("<tr><th>{}</th><td class=\"n\">{} ms</td><td class=\"n\">{} ms</td><td class=\"n\">{}</td></tr>\n",
                    pair.seed_offset, figure(pair.without_ms), figure(pair.with_ms),
                    pair.with_ms > 0 ? factor(pair.without_ms / pair.with_ms) : "");
  return out + "</tbody></table></div>\n";
}

std::string source(const model::Tuning& tuning, const Style& style) {
  if (tuning.source.empty() || !tuning.is_proved()) return {};
  auto out = heading("tune_source", style);
  for (const auto& file : tuning.source) {
    out += "<pre class=\"diff\">";
    for (const auto& line : base::split(file.diff, '\n')) {
      const auto* kind = line.starts_with('+') ? "add" : line.starts_with('-') ? "cut" : "soft";
      out += fmt::format("<span class=\"{}\">{}</span>\n", kind, html_escaped(line));
    }
    out += "</pre>\n";
  }
  if (const auto rest = left_to_write(tuning); !rest.empty())
    out += fmt::format("<p>{}</p>\n", safe("tune_by_hand", style, {{"value", base::join(rest, ", ")}}));
  return out;
}

std::string remaining_findings(const model::Tuning& tuning, const Style& style) {
  if (tuning.remaining.empty()) return {};
  auto out = heading("tune_remaining", style) + "<ul>\n";
  for (const auto& finding : tuning.remaining) {
    const auto words = remaining(finding, tuning, style);
    out += fmt::format("<li>{}<br><span class=\"soft\">{}</span></li>\n", html_escaped(words.title),
                       html_escaped(words.note));
  }
  return out + "</ul>\n";
}

std::string what_is_left(const model::Tuning& tuning, const Style& style) {
  if (tuning.advice.empty()) return {};
  auto out = heading("tune_idle", style) + "<ul>\n";
  for (const auto& one : tuning.advice) out += fmt::format("<li>{}</li>\n", html_escaped(advice(one, style)));
  return out + "</ul>\n";
}

}  // namespace

std::string tune_html(const model::Tuning& tuning, const Style& style) {
  const Style page{.unicode = true, .language = style.language};
  auto body = fmt::format("<p class=\"soft\">fullwatt {} · tune</p>\n<h1>{}</h1>\n", kVersion,
                          html_escaped(verdict(tuning, page)));
  if (tuning.failure.empty()) {
    if (tuning.has_found()) body += tiles(tuning, page);
    body += kept(tuning, page) + proof(tuning, page) + dropped(tuning, page) + source(tuning, page) +
            remaining_findings(tuning, page) + what_is_left(tuning, page);
  }
  return html_page({.title = "fullwatt tune",
                    .language = page.language == catalog::Language::zh ? "zh" : "en",
                    .body = body,
                    .more_style = kStyle,
                    .script = {}});
}

}  // namespace fullwatt::show
