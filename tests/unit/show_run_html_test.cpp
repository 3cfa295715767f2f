#include <algorithm>
#include <regex>
#include <set>

#include "tests/support/hostile_explanation.hpp"
#include "tests/support/sample_explanation.hpp"
#include <gtest/gtest.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/show/code_html.hpp"
#include "fullwatt/show/content_hash.hpp"
#include "fullwatt/show/run_html.hpp"

namespace fullwatt::show {
namespace {

using base::contains;
using catalog::Language;
using model::Explanation;
using tests::kHostile;
using tests::kSampleScript;

std::string sample_page(Language language = Language::en) {
  return run_html(tests::sample_explanation(), tests::sample_sources(), language);
}

std::vector<std::string> all_matches(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  std::vector<std::string> found;
  for (auto at = std::sregex_iterator(text.begin(), text.end(), regex); at != std::sregex_iterator(); ++at)
    found.push_back((*at)[1].str());
  return found;
}

std::string between(const std::string& text, const std::string& start, const std::string& end) {
  const auto from = text.find(start) + start.size();
  return text.substr(from, text.find(end, from) - from);
}

/// Every page that can be drawn: three kinds of run, in both languages, with harmless and with hostile texts.
std::vector<std::string> all_pages() {
  std::vector<std::string> pages;
  const auto harmless = {tests::sample_explanation(), tests::sample_cpu_explanation(), tests::sample_without_steps(),
                         Explanation{}};
  auto sources = tests::sample_sources();
  sources[kHostile] = kHostile + "\n\t" + kHostile + "\n'''" + kHostile;
  for (const auto& explanation : harmless) {
    for (const auto language : {Language::en, Language::zh}) {
      pages.push_back(run_html(explanation, sources, language));
      pages.push_back(run_html(tests::poisoned(explanation, tests::Poison::everything), sources, language));
      pages.push_back(run_html(tests::poisoned(explanation, tests::Poison::but_ids), sources, language));
    }
  }
  return pages;
}

/// The page without what its style and script hold; only markup is left.
std::string markup(std::string page) {
  for (const auto* tag : {"style", "script"}) {
    const auto start = page.find(std::string("<") + tag + ">");
    const auto end = std::string("</") + tag + ">";
    if (start != std::string::npos) page.erase(start, page.find(end, start) + end.size() - start);
  }
  return page;
}

/// The first tag that is closed without being open, or left open; empty when all are in order.
std::string first_unbalanced(const std::string& html) {
  static const std::set<std::string> kVoid{"meta", "br", "rect", "line", "path"};
  static const std::regex kTag(R"re(<(/?)([a-z][a-z0-9]*)((?:\s+[a-zA-Z-]+(?:="[^"<>]*")?)*)\s*(/?)>)re");
  std::vector<std::string> open;
  for (auto at = std::sregex_iterator(html.begin(), html.end(), kTag); at != std::sregex_iterator(); ++at) {
    const auto name = (*at)[2].str();
    if ((*at)[1].length() > 0) {
      if (open.empty() || open.back() != name) return "</" + name + ">";
      open.pop_back();
    } else if ((*at)[4].length() == 0 && !kVoid.contains(name)) {
      open.push_back(name);
    }
  }
  return open.empty() ? std::string{} : "<" + open.back() + ">";
}

TEST(RunHtmlTest, EveryTagIsClosedWhateverTheTextsHold) {
  for (const auto& page : all_pages()) EXPECT_EQ(first_unbalanced(markup(page)), "");
}

TEST(RunHtmlTest, EveryAngleBracketBelongsToATagOfOurs) {
  static const std::set<std::string> kOurs{
      "!doctype", "html",    "head",  "meta",  "title",  "body",       "header", "main",    "footer", "nav",
      "section",  "article", "h1",    "h2",    "h3",     "p",          "pre",    "code",    "small",  "b",
      "i",        "br",      "a",     "time",  "span",   "div",        "dl",     "dt",      "dd",     "ol",
      "ul",       "li",      "table", "thead", "tbody",  "tr",         "th",     "td",      "svg",    "rect",
      "line",     "path",    "text",  "g",     "figure", "figcaption", "output", "details", "summary"};
  for (const auto& page : all_pages()) {
    for (const auto& name : all_matches(markup(page), "<(/?[^\\s>]*)"))
      EXPECT_TRUE(kOurs.contains(name.starts_with('/') ? name.substr(1) : name)) << name;
  }
}

TEST(RunHtmlTest, NothingIsLoadedFromAnywhere) {
  for (const auto& page : all_pages()) {
    const auto body = markup(page);
    EXPECT_FALSE(
        std::regex_search(body, std::regex("<[^>]*\\s(src|srcset|action|formaction|xlink:href|on[a-z]+|style)=")));
    for (const auto& target : all_matches(body, "<[^>]* href=\"([^\"]*)\""))
      EXPECT_TRUE(target.starts_with("#")) << target;
    EXPECT_FALSE(contains(page, "url("));
    EXPECT_FALSE(contains(page, "@import"));
  }
  EXPECT_FALSE(contains(sample_page(), "http:"));
  EXPECT_FALSE(contains(sample_page(), "https:"));
}

TEST(RunHtmlTest, ThePolicyAllowsOnlyOurOwnStyleAndScript) {
  for (const auto& page : all_pages()) {
    const auto policy = between(page, "Content-Security-Policy\" content=\"", "\"");
    EXPECT_TRUE(policy.starts_with("default-src 'none'; style-src 'sha256-")) << policy;
    EXPECT_FALSE(contains(policy, "unsafe"));
    EXPECT_TRUE(contains(policy, content_hash(between(page, "<style>", "</style>"))));
    const auto scripts = all_matches(page, "(<script)").size();
    EXPECT_EQ(scripts, contains(policy, "script-src") ? 1U : 0U);
    if (scripts == 1) {
      EXPECT_TRUE(contains(policy, content_hash(between(page, "<script>", "</script>"))));
    }
  }
}

TEST(RunHtmlTest, EveryLinkLeadsToAnElementOfThePage) {
  for (const auto language : {Language::en, Language::zh}) {
    const auto page = sample_page(language);
    const auto ids = all_matches(page, " id=\"([^\"]*)\"");
    const std::set<std::string> known(ids.begin(), ids.end());
    EXPECT_EQ(known.size(), ids.size());
    const auto links = all_matches(page, " href=\"#([^\"]*)\"");
    EXPECT_GT(links.size(), 20U);
    for (const auto& link : links) EXPECT_TRUE(known.contains(link)) << link;
  }
}

TEST(RunHtmlTest, TheSourceBearsItsMillisecondsInTheMargin) {
  const auto page = sample_page();
  const auto row = between(page, "id=\"f1-53\">", "</div>");
  EXPECT_TRUE(contains(row, "<span class=\"ms\">7.31</span><span class=\"no\">53</span>"));
  EXPECT_TRUE(contains(row, "enumerate(loader)"));
  EXPECT_TRUE(contains(row, "GPU idle: waiting for data"));
  EXPECT_TRUE(contains(page, "<div class=\"row heat8\" id=\"f1-53\">"));
  EXPECT_TRUE(contains(between(page, "id=\"f1-39\">", "</div>"), "href=\"#finding-1\">loader-workers-zero</a>"));
  EXPECT_TRUE(contains(page, "<summary>lines 1–17</summary>"));
}

TEST(RunHtmlTest, AVeryLongFileStaysAPage) {
  auto sources = tests::sample_sources();
  for (int i = 0; i < 20'000; ++i) sources[kSampleScript] += "x = " + std::to_string(i) + "\n";
  const auto page = run_html(tests::sample_explanation(), sources, Language::en);
  EXPECT_LT(page.size(), 400'000U);
  EXPECT_TRUE(contains(page, "lines 69–20084"));
}

TEST(RunHtmlTest, FilesThatWereNotKeptAreNamedWithoutALink) {
  const auto page = run_html(tests::sample_explanation(), {}, Language::en);
  EXPECT_FALSE(contains(page, "id=\"source\""));
  EXPECT_TRUE(contains(page, "<code>train.py:53</code>"));
  EXPECT_FALSE(contains(page, "href=\"#f1-53\""));
}

TEST(RunHtmlTest, TheBarsPartsFillTheStep) {
  const auto bar = between(sample_page(), "class=\"parts\">", "</svg>\n</svg>");
  double sum = 0;
  for (const auto& width : all_matches(bar, " width=\"([0-9.]+)%\" height=\"44\" class")) sum += std::stod(width);
  EXPECT_NEAR(sum, 100, 0.05);
}

TEST(RunHtmlTest, NumbersThatAreNoneDoNoHarm) {
  auto explanation = tests::sample_explanation();
  const auto nothing = std::numeric_limits<double>::quiet_NaN();
  explanation.causes[0].charged_ms = nothing;
  explanation.example_step_ms = nothing;
  for (auto& point : explanation.trend) point.step_ms = nothing;
  explanation.resources[0].limit = 0;
  explanation.lines[0].ms = nothing;
  const auto page = run_html(explanation, tests::sample_sources(), Language::en);
  EXPECT_FALSE(contains(page, "nan"));
  EXPECT_EQ(first_unbalanced(markup(page)), "");
}

TEST(CodeHtmlTest, CommentsStringsAndKeywordsAreMarkedOverLines) {
  const auto lines = code_html("def f():  # <b>\n\t\"\"\"one\ntwo\"\"\" if x else 'a\\'b'\n");
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0], "<span class=\"hk\">def</span> f():  <span class=\"hc\"># &lt;b&gt;</span>");
  EXPECT_EQ(lines[1], "    <span class=\"hs\">&quot;&quot;&quot;one</span>");
  EXPECT_EQ(
      lines[2],
      "<span class=\"hs\">two&quot;&quot;&quot;</span> <span class=\"hk\">if</span> x <span class=\"hk\">else</span> "
      "<span class=\"hs\">&#39;a\\&#39;b&#39;</span>");
}

TEST(CodeHtmlTest, AStringThatIsNotClosedEndsWithItsLine) {
  const auto lines = code_html("a = 'x\nb\\");
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[1], "b\\");
  EXPECT_EQ(code_html("'\\").front(), "<span class=\"hs\">&#39;\\</span>");
}

}  // namespace
}  // namespace fullwatt::show
