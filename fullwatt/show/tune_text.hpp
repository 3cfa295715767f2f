#pragma once

#include <string>
#include <vector>

#include "fullwatt/model/proof.hpp"
#include "fullwatt/show/style.hpp"

namespace fullwatt::show {

/// One line about a fix that is worth a trial: what it should give, said before it is tried.
std::string candidate_line(const model::TriedFix& fix, const Style& style);

/// One line about a fix that was tried, as soon as it was.
std::string tried_line(const model::TriedFix& tried, const Style& style);

/// The proof in single lines without colours: what a plan is told to rest on.
std::vector<std::string> evidence(const model::Tuning& tuning);

/// The whole answer for a terminal: what was tried, the proof, and the sentence that counts.
std::string tune_text(const model::Tuning& tuning, const Style& style);

}  // namespace fullwatt::show
