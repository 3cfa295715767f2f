#pragma once

#include "fullwatt/model/explanation.hpp"
#include "fullwatt/show/page.hpp"

/// The sections of a run's report for a terminal; each is silent where there is nothing to say.
namespace fullwatt::show::text_parts {

/// The step as a bar and as a table of its causes.
void step(Page& page, const model::Explanation& explanation, bool verbose);
void findings(Page& page, const model::Explanation& explanation, bool verbose);
void kernels(Page& page, const model::Explanation& explanation, bool verbose);
void resources(Page& page, const model::Explanation& explanation, bool verbose);
void fixes(Page& page, const model::Explanation& explanation);
void settings(Page& page, const model::Explanation& explanation, bool verbose);
void between(Page& page, const model::Explanation& explanation);
void ranks(Page& page, const model::Explanation& explanation);
void facts(Page& page, const model::Explanation& explanation);

}  // namespace fullwatt::show::text_parts
