#pragma once

#include <string>

#include "fullwatt/model/proof.hpp"
#include "fullwatt/show/style.hpp"

namespace fullwatt::show {

/// A tuning as one page that loads nothing: before and after, what each fix gives beside what was predicted, the proof
/// with its losses, and the plan in the user's source. Of the style only the language counts.
std::string tune_html(const model::Tuning& tuning, const Style& style);

}  // namespace fullwatt::show
