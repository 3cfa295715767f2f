#include <algorithm>
#include <set>

#include "tests/support/machines.hpp"
#include <gtest/gtest.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/doctor/diagnose.hpp"
#include "fullwatt/doctor/select.hpp"
#include "fullwatt/show/doctor.hpp"
#include "fullwatt/show/explain.hpp"
#include "fullwatt/show/html.hpp"
#include "fullwatt/show/select.hpp"
#include "fullwatt/show/words.hpp"

namespace fullwatt::show {
namespace {

using base::contains;
using model::Json;

const base::Environment kUtf8{{"LANG", "en_US.UTF-8"}};

struct ColorCase {
  const char* name;
  std::string flag;
  base::Environment environment;
  bool terminal;
  bool expected;
};

TEST(StyleTest, ColourFollowsFlagThenVariablesThenTheTerminal) {
  const std::vector<ColorCase> cases{
      {"a terminal", "auto", {}, true, true},
      {"a pipe", "auto", {}, false, false},
      {"never beats the terminal", "never", {}, true, false},
      {"always beats the pipe", "always", {}, false, true},
      {"always beats NO_COLOR", "always", {{"NO_COLOR", "1"}}, false, true},
      {"never beats CLICOLOR_FORCE", "never", {{"CLICOLOR_FORCE", "1"}}, true, false},
      {"NO_COLOR", "auto", {{"NO_COLOR", "1"}}, true, false},
      {"an empty NO_COLOR does not count", "auto", {{"NO_COLOR", ""}}, true, true},
      {"NO_COLOR beats CLICOLOR_FORCE", "auto", {{"NO_COLOR", "1"}, {"CLICOLOR_FORCE", "1"}}, true, false},
      {"CLICOLOR_FORCE beats the pipe", "auto", {{"CLICOLOR_FORCE", "1"}}, false, true},
      {"CLICOLOR_FORCE=0 does not count", "auto", {{"CLICOLOR_FORCE", "0"}}, false, false},
      {"CLICOLOR_FORCE beats CLICOLOR", "auto", {{"CLICOLOR_FORCE", "1"}, {"CLICOLOR", "0"}}, false, true},
      {"CLICOLOR=0", "auto", {{"CLICOLOR", "0"}}, true, false},
      {"CLICOLOR=1 alone does not colour a pipe", "auto", {{"CLICOLOR", "1"}}, false, false},
      {"a dumb terminal", "auto", {{"TERM", "dumb"}}, true, false},
  };
  for (const auto& given : cases) {
    EXPECT_EQ(style_for({given.flag, ""}, given.environment, given.terminal, 80).color, given.expected) << given.name;
  }
}

TEST(StyleTest, SymbolsFollowTheLocale) {
  EXPECT_TRUE(style_for({}, {{"LANG", "de_DE.UTF-8"}}, true, 80).unicode);
  EXPECT_TRUE(style_for({}, {{"LC_ALL", "C.utf8"}, {"LANG", "C"}}, true, 80).unicode);
  EXPECT_FALSE(style_for({}, {{"LANG", "C"}}, true, 80).unicode);
  EXPECT_FALSE(style_for({}, {}, true, 80).unicode);
  EXPECT_FALSE(style_for({}, {{"LC_ALL", "POSIX"}, {"LANG", "en_US.UTF-8"}}, true, 80).unicode);
}

TEST(StyleTest, TheLanguageIsTheFlagsThenTheLocales) {
  using catalog::Language;
  EXPECT_EQ(style_for({"auto", "zh"}, kUtf8, true, 80).language, Language::zh);
  EXPECT_EQ(style_for({"auto", "en"}, {{"LANG", "zh_CN.UTF-8"}}, true, 80).language, Language::en);
  EXPECT_EQ(style_for({}, {{"LANG", "zh_CN.UTF-8"}}, true, 80).language, Language::zh);
  EXPECT_EQ(style_for({}, {{"LC_MESSAGES", "zh_TW.UTF-8"}, {"LANG", "en_US.UTF-8"}}, true, 80).language, Language::zh);
  EXPECT_EQ(style_for({}, {{"LANG", "zh_CN.GBK"}}, true, 80).language, Language::en);
  EXPECT_TRUE(style_for({"auto", "zh"}, {{"LANG", "C"}}, true, 80).unicode);
}

TEST(StyleTest, TheWidthIsThatOfTheTerminalWithinReason) {
  EXPECT_EQ(style_for({}, {}, true, 80).width, 80);
  EXPECT_EQ(style_for({}, {}, true, 5).width, 40);
  EXPECT_EQ(style_for({}, {}, true, 1000).width, 110);
  EXPECT_EQ(style_for({}, {}, false, 0).width, 100);
}

TEST(PaintTest, WithoutColourTheTextIsUntouched) {
  EXPECT_EQ(paint({.color = false}, Ink::red, "x"), "x");
  EXPECT_EQ(paint({.color = true}, Ink::red, "x"), "\x1b[31mx\x1b[0m");
  EXPECT_EQ(paint({.color = true}, Ink::plain, "x"), "x");
  EXPECT_EQ(paint({.color = true}, Ink::red, ""), "");
}

TEST(WidthTest, ChineseCharactersTakeTwoColumns) {
  EXPECT_EQ(display_width("GPU"), 3);
  EXPECT_EQ(display_width("显存"), 4);
  EXPECT_EQ(display_width("GPU 显存，80°C"), 3 + 1 + 4 + 2 + 4);
  EXPECT_EQ(display_width("é"), 1);
  EXPECT_EQ(display_width(""), 0);
}

TEST(WrapTest, LinesBreakAtBlanks) {
  EXPECT_EQ(wrap("one two three", 7), (std::vector<std::string>{"one two", "three"}));
  EXPECT_EQ(wrap("one", 7), std::vector<std::string>{"one"});
  EXPECT_EQ(wrap("", 7), std::vector<std::string>{""});
  EXPECT_EQ(wrap("one two", 3), (std::vector<std::string>{"one", "two"}));
}

TEST(WrapTest, AWordLongerThanTheLineStaysWhole) {
  EXPECT_EQ(wrap("a /a/very/long/path b", 6), (std::vector<std::string>{"a", "/a/very/long/path", "b"}));
}

TEST(WrapTest, ChineseBreaksBetweenCharactersByDisplayWidth) {
  EXPECT_EQ(wrap("显卡没有被驱动识别", 8), (std::vector<std::string>{"显卡没有", "被驱动识", "别"}));
  EXPECT_EQ(wrap("显卡没有被驱动识别", 9), (std::vector<std::string>{"显卡没有", "被驱动识", "别"}));
  for (const auto& line : wrap("PyTorch 没有为 compute capability 12.0 编译的 kernel，因此在第一次运算时失败。", 20)) {
    EXPECT_LE(display_width(line), 20) << line;
  }
}

TEST(WrapTest, NoEmptyLineIsLeftAtTheEnd) {
  EXPECT_EQ(wrap("abc ", 3), std::vector<std::string>{"abc"});
  EXPECT_EQ(wrap("显卡 ", 4), std::vector<std::string>{"显卡"});
}

TEST(PlainSymbolsTest, OnlyAsciiIsLeftWhereTheTerminalHasNoMore) {
  EXPECT_EQ(plain_symbols({.unicode = false}, "2 × H200 – 80 °C… → “x”"), "2 x H200 - 80  deg C... -> ?x?");
  EXPECT_EQ(plain_symbols({.unicode = true}, "2 × H200…"), "2 × H200…");
}

TEST(FillTest, PlaceholdersTakeTheirFacts) {
  EXPECT_EQ(fill("{gpu} at {bdf}", {{"gpu", "H200"}, {"bdf", "0000:01:00.0"}}), "H200 at 0000:01:00.0");
  EXPECT_EQ(fill("{gpu}", {}), "<gpu>");
  EXPECT_EQ(fill("a {Not One} {} { b", {{"b", "x"}}), "a {Not One} {} { b");
}

TEST(FillTest, AFactIsNotFilledAgain) {
  EXPECT_EQ(fill("{a}", {{"a", "{b}"}, {"b", "secret"}}), "{b}");
}

TEST(FillTest, EscapeSequencesInFactsBecomeVisible) {
  EXPECT_EQ(fill("process {process}", {{"process", "\x1b]0;owned\a\x1b[2Jx"}}),
            "process \uFFFD]0;owned\uFFFD\uFFFD[2Jx");
  EXPECT_EQ(fill("{a}", {{"a", "x\ny"}}), "x y");
}

TEST(FillCommandTest, PlainValuesStandAsTheyAre) {
  EXPECT_EQ(fill_command("kill {pid}", {{"pid", "4242"}}), "kill 4242");
  EXPECT_EQ(fill_command("ls {path}", {{"path", "/usr/lib/libcuda.so.1"}}), "ls /usr/lib/libcuda.so.1");
  EXPECT_EQ(fill_command("ls {path}", {}), "ls <path>");
}

TEST(FillCommandTest, OtherValuesAreQuoted) {
  EXPECT_EQ(fill_command("ls {path}", {{"path", "/my files"}}), "ls '/my files'");
  EXPECT_EQ(fill_command("ls {path}", {{"path", ""}}), "ls ''");
  EXPECT_EQ(fill_command("ls {path}", {{"path", "'; rm -rf ~ #"}}), "ls ''\\''; rm -rf ~ #'");
  EXPECT_EQ(fill_command("ls {path}", {{"path", "$(reboot)`reboot`"}}), "ls '$(reboot)`reboot`'");
  EXPECT_EQ(fill_command("ls {path}", {{"path", "a\nreboot"}}), "ls 'a reboot'");
  EXPECT_EQ(fill_command("ls {path}", {{"path", "~root"}}), "ls '~root'");
}

TEST(FillCommandTest, InsideQuotesOnlyPlainValuesAreFilledIn) {
  const Facts hostile{{"bdf", "x' ; reboot ; '"}, {"value", "$(reboot)"}};
  EXPECT_EQ(fill_command("sudo sh -c 'echo {bdf} > /sys'", hostile), "sudo sh -c 'echo <bdf> > /sys'");
  EXPECT_EQ(fill_command("echo \"{value}\" {value}", hostile), "echo \"<value>\" '$(reboot)'");
  EXPECT_EQ(fill_command("echo \\'{value}", hostile), "echo \\''$(reboot)'");
  EXPECT_EQ(fill_command("sudo sh -c 'echo {bdf} > /sys'", {{"bdf", "0000:01:00.0"}}),
            "sudo sh -c 'echo 0000:01:00.0 > /sys'");
}

/// Names between braces in a text of the catalogue.
std::set<std::string> placeholders(std::string_view text) {
  std::set<std::string> names;
  for (auto open = text.find('{'); open != std::string_view::npos; open = text.find('{', open + 1)) {
    names.emplace(text.substr(open + 1, text.find('}', open) - open - 1));
  }
  return names;
}

/// A finding of every entry, with `value` in place of all that comes from outside.
model::Diagnosis every_finding(const std::string& value) {
  model::Diagnosis diagnosis;
  for (const auto& entry : catalog::entries()) {
    model::Finding finding{std::string(entry.id), entry.layer, entry.severity, entry.confidence};
    finding.evidence = {{value, value, value}, {value, value, ""}};
    std::string texts = std::string(entry.title.en) + std::string(entry.cause.en);
    for (const auto& step : entry.remedy) texts += std::string(step.text.en) + std::string(step.run);
    for (const auto& name : placeholders(texts)) finding.facts[name] = value;
    diagnosis.findings.push_back(std::move(finding));
    diagnosis.checks.push_back({std::string(entry.id), entry.layer, model::CheckResult::Status::skipped, value});
  }
  diagnosis.root_cause = diagnosis.findings.front().id;
  diagnosis.findings.back().consequence_of = diagnosis.root_cause;
  for (const auto layer : model::kLayers) diagnosis.layers.push_back({layer, model::LayerStatus::State::broken, value});
  return diagnosis;
}

/// A process that calls itself everything that could hurt a reader.
const std::string kHostile =
    "\x1b[31m\x1b]0;t\a\r\n<script>alert(1)</script>`id`|$(id)&\"'\\\u202E\xff**_[x](http://y)";

DoctorReport hostile_report() {
  DoctorReport report;
  report.machine = tests::machine_with_gpu();
  report.machine.gpus[0].name = kHostile;
  report.machine.host.environment["PATH"] = kHostile;
  report.machine.problems = {{kHostile, kHostile}};
  report.diagnosis = every_finding(kHostile);
  return report;
}

/// Control characters other than line ends, or bytes that are no UTF-8.
bool is_dirty(std::string text) {
  std::erase(text, '\n');
  return base::printable(text, text.size() + 1) != text;
}

constexpr catalog::Language kLanguages[] = {catalog::Language::en, catalog::Language::zh};

TEST(HostileReportTest, TheTerminalGetsNoControlCharacters) {
  for (const auto language : kLanguages) {
    for (const bool verbose : {false, true}) {
      const auto text =
          doctor_text(hostile_report(), {.color = false, .unicode = true, .width = 80, .language = language}, verbose);
      EXPECT_EQ(text.find('\x1b'), std::string::npos);
      EXPECT_FALSE(contains(text, "\u202E"));
      EXPECT_FALSE(contains(text, "\xff"));
      std::string without_replacements;
      for (std::size_t at = 0; at < text.size();) {
        const bool replacement = std::string_view(text).substr(at).starts_with("\uFFFD");
        if (!replacement) without_replacements += text[at];
        at += replacement ? 3 : 1;
      }
      EXPECT_FALSE(is_dirty(without_replacements));
    }
  }
}

TEST(HostileReportTest, ColourCodesAreOursOnly) {
  const auto text = doctor_text(hostile_report(), {.color = true, .unicode = true, .width = 80}, true);
  for (auto at = text.find('\x1b'); at != std::string::npos; at = text.find('\x1b', at + 1)) {
    const auto code = std::string_view(text).substr(at, text.find('m', at) - at + 1);
    const std::set<std::string_view> known{"\x1b[0m",  "\x1b[1m",  "\x1b[2m", "\x1b[31m",
                                           "\x1b[32m", "\x1b[33m", "\x1b[36m"};
    EXPECT_TRUE(known.contains(code)) << base::printable(code);
  }
}

TEST(HostileReportTest, HtmlHoldsNoTagsFromOutside) {
  for (const auto language : kLanguages) {
    const auto html = doctor_html(hostile_report(), language);
    EXPECT_FALSE(contains(html, "<script"));
    EXPECT_FALSE(contains(html, "alert(1)</"));
    EXPECT_FALSE(contains(html, "$(id)&\""));
    EXPECT_FALSE(contains(html, "javascript:"));
    EXPECT_FALSE(contains(html, " src="));
    EXPECT_EQ(html.find('\x1b'), std::string::npos);
    EXPECT_TRUE(contains(html, "&lt;script&gt;"));
  }
}

TEST(HostileReportTest, HtmlAttributesCannotBeLeft) {
  EXPECT_EQ(html_escaped("a\"b'c<d>&"), "a&quot;b&#39;c&lt;d&gt;&amp;");
  EXPECT_EQ(html_escaped("\x1b[1m"), "\uFFFD[1m");
}

/// Markdown without its code spans: what a renderer would interpret.
std::string outside_code(const std::string& markdown) {
  std::string out;
  for (std::size_t at = 0; at < markdown.size();) {
    if (markdown[at] == '\\' && at + 1 < markdown.size()) {
      at += 2;
    } else if (markdown[at] == '`') {
      const auto length = markdown.find_first_not_of('`', at) - at;
      const std::string fence(length, '`');
      auto end = markdown.find(fence, at + length);
      while (end != std::string::npos && markdown.substr(end, length + 1) == fence + "`") {
        end = markdown.find(fence, markdown.find_first_not_of('`', end));
      }
      EXPECT_NE(end, std::string::npos) << "a code span without an end: " << markdown.substr(at, 80);
      if (end == std::string::npos) return out;
      EXPECT_EQ(markdown.substr(at, end - at).find('\n'), std::string::npos) << "a code span over two lines";
      at = end + length;
    } else {
      out += markdown[at++];
    }
  }
  return out;
}

TEST(HostileReportTest, MarkdownHoldsNoMarkupFromOutside) {
  for (const auto language : kLanguages) {
    const auto markdown = doctor_markdown(hostile_report(), language);
    EXPECT_EQ(markdown.find('\x1b'), std::string::npos);
    const auto outside = outside_code(markdown);
    EXPECT_EQ(outside.find('<'), std::string::npos) << outside.substr(outside.find('<'), 80);
    EXPECT_EQ(outside.find("]("), std::string::npos);
    for (auto line : base::lines(outside)) {
      if (line.starts_with("|")) {
        EXPECT_EQ(std::ranges::count(line, '|'), 4) << line;
      }
    }
  }
}

TEST(HostileReportTest, JsonParsesAndKeepsItsShape) {
  for (const auto language : kLanguages) {
    const auto text = model::dump(doctor_json(hostile_report(), language), 2);
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
    const auto json = Json::parse(text, nullptr, false);
    ASSERT_FALSE(json.is_discarded());
    EXPECT_EQ(json["schema_version"], 1);
    EXPECT_EQ(json["tool"]["name"], "fullwatt");
    EXPECT_EQ(json["findings"].size(), catalog::entries().size());
    EXPECT_EQ(json["checks"].size(), catalog::entries().size());
    EXPECT_FALSE(json["root_cause"].get<std::string>().empty());
    for (const auto& finding : json["findings"]) {
      EXPECT_FALSE(finding["title"].get<std::string>().empty());
      EXPECT_FALSE(finding["remedy"].empty());
    }
  }
}

/// Whether every letter Q, which stands between all that a shell acts on, is inside single quotes.
bool is_harmless(std::string_view command) {
  bool single = false;
  bool twice = false;
  for (std::size_t i = 0; i < command.size(); ++i) {
    const char c = command[i];
    if (c == 'Q' && !single) return false;
    if (c == '\\' && !single) {
      ++i;
    } else if (c == '\'' && !twice) {
      single = !single;
    } else if (c == '"' && !single) {
      twice = !twice;
    }
  }
  return !single && !twice;
}

TEST(HostileReportTest, NoCommandOfTheCatalogueRunsWhatAFactSays) {
  for (const auto& finding : every_finding("Q'Q;Q$(Q)Q`Q\"Q|Q&Q>Q<Q#Q~Q*Q?Q!Q\\Q\nQ").findings) {
    for (const auto& step : render(finding, catalog::Language::en).remedy) {
      EXPECT_TRUE(is_harmless(step.run)) << finding.id << ": " << step.run;
    }
  }
}

TEST(ReportTest, WithoutUtf8OnlyAsciiIsWritten) {
  DoctorReport report;
  report.machine = tests::machine_with_gpu();
  report.diagnosis = every_finding("x");
  const auto text = doctor_text(report, {.color = false, .unicode = false, .width = 80}, true);
  const auto ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  EXPECT_TRUE(std::ranges::all_of(text, ascii));
  EXPECT_TRUE(contains(text, "[x]"));
}

TEST(ReportTest, TextIsNoWiderThanTheTerminalApartFromCommandsAndWords) {
  DoctorReport report;
  report.machine = tests::machine_with_gpu();
  report.diagnosis = every_finding("x");
  for (auto& status : report.diagnosis.layers) status.summary = "fine";
  const auto text =
      doctor_text(report, {.color = false, .unicode = true, .width = 60, .language = catalog::Language::zh}, false);
  for (auto line : base::lines(text)) {
    const bool wrapped =
        line.starts_with("    ") && !contains(line, "$ ") && std::ranges::count(base::trim(line), ' ') > 3;
    if (wrapped) {
      EXPECT_LE(display_width(line), 60) << line;
    }
  }
}

TEST(ReportTest, TheRootCauseComesFirstAndConsequencesAreMarked) {
  auto machine = tests::machine_with_gpu();
  machine.driver.kernel_log = std::vector<std::string>{"NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus."};
  machine.cuda.answers.init = 4711;
  machine.cuda.answers.devices.clear();
  DoctorReport report{machine, doctor::diagnose(machine), 0.5};
  const auto text = doctor_text(report, {.color = false, .unicode = true, .width = 100}, false);
  const auto root = text.find("Root cause");
  const auto follows = text.find("Follows from it");
  ASSERT_NE(root, std::string::npos);
  ASSERT_NE(follows, std::string::npos);
  EXPECT_LT(root, follows);
  EXPECT_TRUE(contains(text, "because of gpu-fell-off-bus"));
  EXPECT_TRUE(contains(text, "fullwatt explain gpu-fell-off-bus"));
  EXPECT_EQ(closing_sentence(report, catalog::Language::en), "Mend first: gpu-fell-off-bus");
}

TEST(ReportTest, AHealthyMachineEndsWithGoodNews) {
  const auto machine = tests::machine_with_gpu();
  const DoctorReport report{machine, doctor::diagnose(machine), 0.5};
  EXPECT_EQ(closing_sentence(report, catalog::Language::en), catalog::label("all_well", catalog::Language::en));
  EXPECT_FALSE(contains(doctor_text(report, {}, false), "Root cause"));
}

TEST(ReportTest, WhatCouldNotBeExaminedIsSaid) {
  DoctorReport report{tests::machine_with_gpu(), {}, 0};
  report.machine.problems = {{"nvml", "NVML gave no answer within 10 s"}};
  EXPECT_TRUE(contains(doctor_text(report, {}, false), "nvml: NVML gave no answer within 10 s"));
  EXPECT_TRUE(contains(doctor_html(report, catalog::Language::en), "NVML gave no answer within 10 s"));
  EXPECT_TRUE(contains(doctor_markdown(report, catalog::Language::en), "NVML gave no answer within 10 s"));
  EXPECT_EQ(closing_sentence(report, catalog::Language::en), catalog::label("not_examined", catalog::Language::en));
}

TEST(ReportTest, ChineseReportsSpeakChinese) {
  auto machine = tests::machine_with_gpu();
  machine.log = {"RuntimeError: Expected all tensors to be on the same device, but found at least two devices"};
  const DoctorReport report{machine, doctor::diagnose(machine), 0.5};
  EXPECT_TRUE(contains(doctor_text(report, {.language = catalog::Language::zh}, false), "根本原因"));
  EXPECT_TRUE(contains(doctor_html(report, catalog::Language::zh), "<html lang=\"zh\">"));
  EXPECT_TRUE(contains(doctor_markdown(report, catalog::Language::zh), "根本原因"));
}

TEST(ExplainTest, EveryEntryCanBeExplainedInBothLanguages) {
  for (const auto& entry : catalog::entries()) {
    for (const auto language : kLanguages) {
      const auto text = explain_text(entry, {.color = false, .unicode = true, .width = 80, .language = language});
      EXPECT_TRUE(contains(text, entry.id));
      EXPECT_FALSE(is_dirty(text)) << entry.id;
    }
  }
}

TEST(ExplainTest, TheListHasOneLinePerCheck) {
  const auto text = list_checks({.color = false, .unicode = true});
  EXPECT_EQ(base::lines(text).size(), catalog::entries().size());
}

TEST(SelectReportTest, HostileNamesAreMadePrintable) {
  auto machine = tests::machine_without_gpu();
  tests::add_nvidia(machine,
                    {.bdf = kHostile, .uuid = kHostile, .name = kHostile, .compute_capability = "12.0" + kHostile});
  auto selection = doctor::select_gpu(machine);
  ASSERT_EQ(selection.gpus.size(), 1U);
  selection.gpus[0].reasons.push_back(kHostile);
  const auto text = select_text(selection, {.color = false, .unicode = true});
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_FALSE(contains(text, "\u202E"));
  EXPECT_FALSE(contains(text, "\xff"));
  EXPECT_TRUE(Json::accept(model::dump(select_json(selection))));
}

TEST(SelectReportTest, TheSelectedGpuIsMarkedWithItsReason) {
  auto machine = tests::machine_with_gpu();
  tests::add_intel(machine);
  const auto selection = doctor::select_gpu(machine);
  const auto text = select_text(selection, {.color = false, .unicode = true});
  EXPECT_TRUE(contains(text, "✓ NVIDIA GeForce RTX 5090"));
  EXPECT_TRUE(contains(text, "– Intel graphics"));
  EXPECT_TRUE(contains(text, selection.reason));
  const auto json = select_json(selection);
  EXPECT_EQ(json["selected"], "GPU-11111111-aaaa-bbbb-cccc-000000000001");
  EXPECT_EQ(json["schema_version"], 1);
}

}  // namespace
}  // namespace fullwatt::show
