#include <algorithm>
#include <cmath>
#include <limits>
#include <regex>
#include <set>

#include "tests/support/hostile_explanation.hpp"
#include "tests/support/sample_explanation.hpp"
#include "tests/support/temp_folder.hpp"
#include <gtest/gtest.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/show/content_hash.hpp"
#include "fullwatt/show/live_line.hpp"
#include "fullwatt/show/numbers.hpp"
#include "fullwatt/show/run_html.hpp"
#include "fullwatt/show/run_json.hpp"
#include "fullwatt/show/run_list.hpp"
#include "fullwatt/show/run_markdown.hpp"
#include "fullwatt/show/run_text.hpp"
#include "fullwatt/show/run_words.hpp"

namespace fullwatt::show {
namespace {

using base::contains;
using catalog::Language;
using model::Explanation;
using model::Json;
using tests::kHostile;
using tests::sample_explanation;
using tests::sample_sources;

constexpr Language kLanguages[] = {Language::en, Language::zh};

std::vector<Explanation> samples() {
  return {sample_explanation(), tests::sample_cpu_explanation(), tests::sample_without_steps(), Explanation{}};
}

std::vector<Explanation> hostile_samples() {
  std::vector<Explanation> all;
  for (const auto& sample : samples()) {
    all.push_back(tests::poisoned(sample, tests::Poison::everything));
    all.push_back(tests::poisoned(sample, tests::Poison::but_ids));
  }
  return all;
}

std::string plain_text(const Explanation& explanation, int width = 100, Language language = Language::en,
                       bool verbose = false) {
  return run_text(explanation, {.color = false, .unicode = true, .width = width, .language = language},
                  {.verbose = verbose, .report_file = ".fullwatt/runs/20270114-101502/report.html"});
}

/// Positions of words must rise.
void expect_in_order(const std::string& text, const std::vector<std::string>& words) {
  std::size_t at = 0;
  for (const auto& word : words) {
    const auto found = text.find(word, at);
    ASSERT_NE(found, std::string::npos) << word;
    at = found;
  }
}

bool is_ascii(const std::string& text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

TEST(NumbersTest, FiguresHaveThreeDigitsThatCount) {
  EXPECT_EQ(figure(21.437), "21.4");
  EXPECT_EQ(figure(2990.4), "2,990");
  EXPECT_EQ(figure(0.92), "0.92");
  EXPECT_EQ(figure(0.0041), "0.0041");
  EXPECT_EQ(figure(64), "64");
  EXPECT_EQ(figure(0), "0");
  EXPECT_EQ(figure(9.999), "10");
  EXPECT_EQ(figure(99.96), "100");
  EXPECT_EQ(figure(std::nan("")), "?");
}

TEST(NumbersTest, SharesAndTimesReadNaturally) {
  EXPECT_EQ(percent(0.624), "62 %");
  EXPECT_EQ(percent(0.001), "<1 %");
  EXPECT_EQ(percent(0), "0 %");
  EXPECT_EQ(fixed(-0.001, 2), "0.00");
  EXPECT_EQ(fixed(-1234567.5, 1), "-1,234,567.5");
  EXPECT_EQ(fixed(std::numeric_limits<double>::infinity(), 1), "?");
  EXPECT_EQ(counted(12'400), "12,400");
  EXPECT_EQ(duration(272.4), "4 min 32 s");
  EXPECT_EQ(duration(4.2), "4.2 s");
  EXPECT_EQ(duration(7270), "2 h 1 min");
  EXPECT_EQ(clock(3725), "1:02:05");
  EXPECT_EQ(times(2.18), "2.2×");
  EXPECT_EQ(share_of(1, 0), 0);
}

TEST(ContentHashTest, ItIsSha256InBase64) {
  EXPECT_EQ(content_hash(""), "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
  EXPECT_EQ(content_hash("abc"), "sha256-ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=");
  EXPECT_EQ(content_hash(std::string(200, 'x')), "sha256-qiDCPjIBg0BQZ54diJQbmm/tBVfJpwXLLDFeLmP9SG0=");
}

TEST(HeadlineTest, ItSaysHowMuchTheGpuWaitsForWhatAndWhere) {
  EXPECT_EQ(headline(sample_explanation(), Language::en),
            "The GPU is idle 65 % of each 21.4 ms step: it waits for the data loader at train.py:53.");
  EXPECT_EQ(headline(sample_explanation(), Language::zh),
            "每步 21.4 ms，GPU 有 65 % 的时间空闲：它在等待数据加载器（train.py:53）。");
}

TEST(HeadlineTest, ABusyGpuIsCalledBusy) {
  auto explanation = sample_explanation();
  std::erase_if(explanation.causes, [](const auto& cause) { return !cause.gpu_busy; });
  EXPECT_EQ(headline(explanation, Language::en),
            "The GPU is busy 100 % of each 7.58 ms step, mostly with convolutions.");
}

TEST(HeadlineTest, WithoutAGpuTheHostsLargestPartIsNamed) {
  EXPECT_EQ(headline(tests::sample_cpu_explanation(), Language::en),
            "The largest part (53 %) of each 842 ms step is backward pass at train.py:62.");
}

TEST(RunTextTest, WhatLiesBetweenStepsIsCountedBesideThem) {
  auto explanation = tests::sample_cpu_explanation();
  model::Finding evaluation;
  evaluation.id = explanation.verdict = "evaluation-dominates";
  evaluation.charged_ms = 1684;  // twice a step
  evaluation.gain_ms = 842;
  evaluation.between_steps = true;
  explanation.findings = {evaluation};
  const auto text = plain_text(explanation);
  EXPECT_TRUE(contains(text, "would save 842 ms a step (1.5× as fast)")) << text;
  EXPECT_TRUE(contains(text, "saves 842 ms a step, between the steps (1.5×)")) << text;
}

TEST(RunTextTest, RemarksAreToldInTheReadersLanguage) {
  auto explanation = sample_explanation();
  explanation.remarks = {"the spool was cut: 12 of 34 bytes are there", "something that nobody has foreseen"};
  EXPECT_TRUE(contains(plain_text(explanation), "the spool was cut: 12 of 34 bytes are there"));
  const auto chinese = plain_text(explanation, 100, Language::zh);
  EXPECT_TRUE(contains(chinese, "34 字节中只有 12 字节")) << chinese;
  EXPECT_TRUE(contains(chinese, "something that nobody has foreseen"));
}

TEST(RunTextTest, SectionsComeInTheirOrder) {
  expect_in_order(plain_text(sample_explanation()), {"The GPU is idle 65 %",
                                                     "First: Data is loaded",
                                                     "One step, 21.4 ms",
                                                     "A▒",
                                                     "would save",
                                                     "GPU idle",
                                                     "waiting for data",
                                                     "GPU busy",
                                                     "convolutions",
                                                     "the step",
                                                     "What to change",
                                                     "loader-workers-zero",
                                                     "Also found",
                                                     "Work of the GPU",
                                                     "Resources",
                                                     "214 of 700 W",
                                                     "Configuration against reality",
                                                     "loader.num_workers",
                                                     "Between the steps",
                                                     "evaluation",
                                                     "The run",
                                                     "fullwatt itself cost 3.4 µs",
                                                     "Change first",
                                                     "fullwatt explain loader-workers-zero",
                                                     "report.html"});
}

TEST(RunTextTest, TheRowsSumToTheStep) {
  const auto text = plain_text(sample_explanation());
  const std::regex row(R"re(\n    [A-Z] [^\n]*?  +([0-9.]+) +<?[0-9]+ %)re");
  double sum = 0;
  int rows = 0;
  for (auto at = std::sregex_iterator(text.begin(), text.end(), row); at != std::sregex_iterator(); ++at, ++rows)
    sum += std::stod((*at)[1].str());
  EXPECT_EQ(rows, 11);
  EXPECT_NEAR(sum, 21.4, 0.001);
  EXPECT_TRUE(contains(text, "the step                            21.40  100 %"));
}

TEST(RunTextTest, NoLineIsWiderThanTheTerminal) {
  for (const auto& explanation : samples()) {
    for (const auto language : kLanguages) {
      for (const int width : {80, 100, 120}) {
        for (const bool verbose : {false, true}) {
          const auto text = plain_text(explanation, width, language, verbose);
          for (auto line : base::lines(text)) {
            if (contains(line, "$ ")) continue;
            EXPECT_LE(display_width(line), width) << line;
          }
        }
      }
    }
  }
}

TEST(RunTextTest, WithoutUtf8OnlyAsciiIsWritten) {
  for (const auto& explanation : samples()) {
    const auto text = run_text(explanation, {.color = false, .unicode = false, .width = 80}, {.verbose = true});
    EXPECT_TRUE(is_ascii(text));
  }
  const auto text = run_text(sample_explanation(), {.color = false, .unicode = false, .width = 80});
  EXPECT_TRUE(contains(text, "A......"));
  EXPECT_TRUE(contains(text, "[!] Data is loaded"));
}

TEST(RunTextTest, OnlyVerboseShowsEvidenceAndSettingsThatAgree) {
  const auto brief = plain_text(sample_explanation());
  const auto verbose = plain_text(sample_explanation(), 100, Language::en, true);
  EXPECT_FALSE(contains(brief, "412 of 433 in make_targets"));
  EXPECT_TRUE(contains(verbose, "412 of 433 in make_targets"));
  EXPECT_FALSE(contains(brief, "optimizer.lr"));
  EXPECT_TRUE(contains(verbose, "optimizer.lr"));
  EXPECT_TRUE(contains(brief, "3 more are as configured"));
  EXPECT_TRUE(contains(verbose, "targets.py:18 make_targets"));
}

TEST(RunTextTest, MissingKernelTimesAreSaidWithTheReason) {
  const auto text = plain_text(tests::sample_cpu_explanation());
  EXPECT_TRUE(contains(text, "No times of GPU kernels: the training runs on the CPU."));
  EXPECT_TRUE(contains(text, "backward pass"));
  EXPECT_FALSE(contains(text, "GPU idle"));
}

TEST(RunTextTest, WithoutAStepItSaysWhatWasSeenAndWhatToDo) {
  auto explanation = tests::sample_without_steps();
  const auto text = plain_text(explanation);
  expect_in_order(text, {"No training step was seen in 4.2 s.", "What was seen", "exit code 1", "What to do",
                         "torch.optim", "$ fullwatt doctor", "before its first optimiser step"});
  EXPECT_FALSE(contains(text, "One step"));
  explanation.info.signal = 9;
  EXPECT_TRUE(contains(plain_text(explanation), "ended by signal 9"));
  explanation.info.interrupted = true;
  EXPECT_TRUE(contains(plain_text(explanation), "The run was stopped"));
}

TEST(RunTextTest, AHealthyRunEndsWithGoodNews) {
  auto explanation = sample_explanation();
  explanation.findings.clear();
  explanation.verdict.clear();
  const auto text = plain_text(explanation);
  EXPECT_TRUE(contains(text, "Nothing worth changing was found."));
  EXPECT_FALSE(contains(text, "What to change"));
}

TEST(RunTextTest, ChineseSpeaksChinese) {
  const auto text = plain_text(sample_explanation(), 100, Language::zh);
  for (const auto* word : {"等待数据", "GPU 空闲", "可以改什么", "卷积", "配置与实际"})
    EXPECT_TRUE(contains(text, word)) << word;
}

/// Control characters other than line ends, or bytes that are no UTF-8.
bool is_dirty(std::string text) {
  std::erase(text, '\n');
  for (auto at = text.find("\uFFFD"); at != std::string::npos; at = text.find("\uFFFD")) text.erase(at, 3);
  return base::printable(text, text.size() + 1) != text;
}

TEST(HostileRunTest, TheTerminalGetsNoControlCharacters) {
  for (const auto& explanation : hostile_samples()) {
    for (const bool verbose : {false, true}) EXPECT_FALSE(is_dirty(plain_text(explanation, 80, Language::en, verbose)));
    const auto coloured = run_text(explanation, {.color = true, .unicode = true, .width = 80}, {.verbose = true});
    EXPECT_FALSE(is_dirty(std::regex_replace(coloured, std::regex("\x1b\\[[0-9]{1,2}m"), "")));
    EXPECT_FALSE(contains(coloured, "\x1b]"));
  }
}

TEST(HostileRunTest, MarkdownHoldsNoMarkupFromOutside) {
  for (const auto& explanation : hostile_samples()) {
    const auto text = run_markdown(explanation, Language::en);
    EXPECT_FALSE(is_dirty(text));
    const auto outside = std::regex_replace(text, std::regex("(`+)[^`](.*?[^`])?\\1(?!`)|\\\\."), "");
    EXPECT_FALSE(contains(outside, "<")) << outside.substr(outside.find('<'), 80);
    EXPECT_FALSE(contains(outside, "]("));
    for (auto line : base::lines(outside)) {
      if (line.starts_with("|")) {
        EXPECT_EQ(std::ranges::count(line, '|'), 6) << line;
      }
    }
  }
}

TEST(HostileRunTest, JsonParsesAndKeepsItsShape) {
  for (const auto& explanation : hostile_samples()) {
    const auto json = Json::parse(model::dump(run_json(explanation, Language::en)), nullptr, false);
    ASSERT_FALSE(json.is_discarded());
    EXPECT_EQ(json["schema_version"], 1);
    EXPECT_EQ(json["causes"].size(), explanation.causes.size());
  }
}

TEST(RunJsonTest, TheSchemaNamesEveryFieldAndNoOther) {
  const auto schema = Json::parse(tests::read_all(std::string(FULLWATT_SOURCE) + "/docs/run.schema.json"));
  const auto json = run_json(sample_explanation(), Language::en);
  const auto keys = [](const Json& object) {
    std::set<std::string> names;
    for (const auto& [name, value] : object.items()) names.insert(name);
    return names;
  };
  const auto same = [&](const Json& value, const Json& part) {
    EXPECT_EQ(keys(value), keys(part.at("properties")));
    EXPECT_EQ(keys(value), part.at("required").get<std::set<std::string>>());
  };
  same(json, schema);
  same(json["run"], schema["properties"]["run"]);
  same(json["step_ms"], schema["properties"]["step_ms"]);
  for (const auto* list : {"causes", "kernels", "resources", "settings", "trend", "example_step", "between"})
    same(json[list][0], schema["properties"][list]["items"]);
  same(json["findings"][0], schema["$defs"]["finding"]);
  same(json["lines"][0], schema["$defs"]["line"]);
}

TEST(RunJsonTest, AnEmptyVerdictIsNull) {
  EXPECT_EQ(run_json(sample_explanation(), Language::en)["verdict"], "loader-workers-zero");
  EXPECT_TRUE(run_json(tests::sample_without_steps(), Language::en)["verdict"].is_null());
}

TEST(LiveLineTest, ItHoldsWhatIsKnownInOneLine) {
  const LiveStatus status{.step = 1204,
                          .step_ms = 21.43,
                          .samples_per_second = 2990,
                          .gpu_busy = 0.354,
                          .power_w = 214,
                          .power_limit_w = 700,
                          .top_cause = "data-wait",
                          .top_cause_ms = 7.31,
                          .elapsed_s = 92};
  EXPECT_EQ(
      live_line(status, 120, false),
      "fullwatt · step 1,204 · 21.4 ms · 2,990 samples/s · GPU 35 % · 214/700 W · waiting for data 7.31 ms · 1:32");
  EXPECT_EQ(
      live_line(status, 120, true),
      "fullwatt | step 1,204 | 21.4 ms | 2,990 samples/s | GPU 35 % | 214/700 W | waiting for data 7.31 ms | 1:32");
  EXPECT_EQ(live_line(status, 36, false), "21.4 ms · waiting for data 7.31 ms");
  EXPECT_EQ(live_line({.elapsed_s = 3}, 80, false), "fullwatt · waiting for the first step · 0:03");
}

TEST(LiveLineTest, ItNeverBreaksTheLine) {
  LiveStatus status{.step = 7,
                    .step_ms = 21.4,
                    .samples_per_second = 1e30,
                    .gpu_busy = std::nan(""),
                    .power_w = 214,
                    .top_cause = kHostile,
                    .top_cause_ms = 7,
                    .elapsed_s = 1e300,
                    .note = kHostile};
  for (const auto language : kLanguages) {
    status.language = language;
    for (int columns = -1; columns < 200; ++columns) {
      const auto line = live_line(status, columns, false);
      EXPECT_LE(display_width(line), std::max(0, columns));
      EXPECT_FALSE(is_dirty(line));
      EXPECT_FALSE(contains(line, "\n"));
      EXPECT_TRUE(is_ascii(live_line(status, columns, true)));
    }
  }
}

TEST(RunListTest, EachRunIsOneLineWithinTheTerminal) {
  const std::vector<RunRow> rows{{"20261115-162000-3f9c", "2026-11-15T16:20:00Z",
                                  "python train.py --config keypoints.yaml", 12400, 21.4, "loader-workers-zero"},
                                 {"20261115-150000-77aa", "2026-11-15T15:00:00Z", kHostile, 0, std::nullopt, ""}};
  const auto text = run_list(rows, {.color = false, .unicode = true, .width = 80});
  EXPECT_EQ(base::lines(text).size(), 3U);
  EXPECT_TRUE(contains(text, "2026-11-15 16:20"));
  EXPECT_TRUE(contains(text, "12,400"));
  EXPECT_FALSE(is_dirty(text));
  for (auto line : base::lines(text)) EXPECT_LE(display_width(line), 80) << line;
  EXPECT_TRUE(contains(run_list({}, {}), "fullwatt run -- python train.py"));
}

}  // namespace
}  // namespace fullwatt::show
