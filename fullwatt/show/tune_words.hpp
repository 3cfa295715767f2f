#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fullwatt/model/proof.hpp"
#include "fullwatt/show/style.hpp"
#include "fullwatt/show/words.hpp"

/// What the terminal and the page say about a tuning.
namespace fullwatt::show::tune_words {

std::string say(std::string_view key, const Style& style, const Facts& facts = {});
/// 1.23×
std::string factor(double speedup);
std::string title_of(const std::string& fix, const Style& style);
/// What the program cannot do without on this machine; usually nothing.
std::string needed(const model::Tuning& tuning, const Style& style);
/// The whole in a sentence.
std::string verdict(const model::Tuning& tuning, const Style& style);
std::string speed(const model::SpeedProof& speed, const Style& style);
std::string loss(const model::LossProof& loss, const Style& style);
std::string advice(const model::Advice& advice, const Style& style);
/// What a finding is about, and below that what mending it saves and where.
struct Remaining {
  std::string title;
  std::string note;
};
Remaining remaining(const model::Finding& finding, const model::Tuning& tuning, const Style& style);

/// "3.1", or "-0.4 to 3.1" for an interval; empty where nothing was said.
std::string predicted(const model::Prediction& prediction, const Style& style);

std::string priority(const model::TriedFix& tried, const Style& style);
double gain_ms(const model::TriedFix& tried);
/// The fixes of the plan, those that give most first.
std::vector<model::TriedFix> kept_by_gain(const model::Tuning& tuning);
/// The fixes of the plan that are not in the difference of the source.
std::vector<std::string> left_to_write(const model::Tuning& tuning);

/// A figure before and after; "–" where it is not known.
struct BeforeAfter {
  std::string name;
  std::string before;
  std::string after;
};
std::vector<BeforeAfter> before_and_after(const model::Tuning& tuning, const Style& style);

}  // namespace fullwatt::show::tune_words
