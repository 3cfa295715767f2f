#include "fullwatt/show/html.hpp"

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/show/content_hash.hpp"

namespace fullwatt::show {
namespace {

constexpr std::string_view kStyle = R"css(
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #59636e; --line: #d7dce1; --page: #ffffff; --card: #f6f8fa;
  --good: #1a7f37; --warn: #9a6700; --bad: #cf222e; --note: #0969da; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9aa4af; --line: #333b45; --page: #0d1117;
  --card: #161b22; --good: #3fb950; --warn: #d29922; --bad: #ff7b72; --note: #58a6ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 2rem 1.25rem 4rem; background: var(--page); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", "Noto Sans", "Noto Sans CJK SC", "PingFang SC", "Microsoft YaHei", sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; }
h2 { font-size: 1.1rem; margin: 2.25rem 0 .75rem; }
.lead { font-size: 1.1rem; margin: 0 0 1.5rem; }
.soft { color: var(--soft); }
table.layers { width: 100%; border-collapse: collapse; }
table.layers th { text-align: left; font-weight: 600; white-space: nowrap; }
table.layers th, table.layers td { padding: .5rem .75rem .5rem 0; border-top: 1px solid var(--line); vertical-align: top; overflow-wrap: anywhere; }
article { background: var(--card); border: 1px solid var(--line); border-left: 4px solid var(--soft); border-radius: 6px;
  padding: 1rem 1.25rem; margin: 0 0 1rem; }
article h3 { font-size: 1rem; margin: 0 0 .5rem; overflow-wrap: anywhere; }
article.error { border-left-color: var(--bad); } article.warning { border-left-color: var(--warn); }
article.note, article.info { border-left-color: var(--note); }
.state { font-weight: 700; } .works { color: var(--good); } .degraded { color: var(--warn); } .broken { color: var(--bad); }
code, pre { font: .875em/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
code { overflow-wrap: anywhere; }
pre { background: var(--page); border: 1px solid var(--line); border-radius: 4px; padding: .5rem .75rem; margin: .35rem 0 .75rem; white-space: pre-wrap; overflow-wrap: anywhere; }
ol { margin: .5rem 0 0; padding-left: 1.25rem; } ul { padding-left: 1.25rem; }
details { margin-top: 2rem; } summary { cursor: pointer; font-weight: 600; }
dl.seen { margin: .5rem 0; } dl.seen div { display: flex; flex-wrap: wrap; gap: 0 .5rem; } dl.seen dt { color: var(--soft); } dl.seen dd { margin: 0; overflow-wrap: anywhere; }
.id { font-weight: 400; color: var(--soft); font-size: .85rem; }
)css";

}  // namespace

std::string html_escaped(std::string_view text) {
  std::string out;
  for (const char c : base::printable(text, 2000)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string html_page(const HtmlPage& page) {
  const auto style = std::string(kStyle) + std::string(page.more_style);
  const auto script_policy =
      page.script.empty() ? std::string{} : fmt::format("; script-src '{}'", content_hash(page.script));
  const auto script = page.script.empty() ? std::string{} : fmt::format("<script>{}</script>\n", page.script);
  return fmt::format(
      "<!doctype html>\n<html lang=\"{}\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src '{}'{}; base-uri 'none'; "
      "form-action 'none'\">\n<meta name=\"referrer\" content=\"no-referrer\">\n"
      "<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n{}{}</body>\n</html>\n",
      html_escaped(page.language), content_hash(style), script_policy, html_escaped(page.title), style, page.body,
      script);
}

}  // namespace fullwatt::show
