#include "fullwatt/show/run_json.hpp"

#include "fullwatt/show/finding_json.hpp"
#include "fullwatt/show/run_words.hpp"
#include "fullwatt/show/version.hpp"

namespace fullwatt::show {

using model::Json;

Json run_json(const model::Explanation& explanation, catalog::Language language) {
  Json json{{"schema_version", model::Explanation::kSchemaVersion},
            {"tool", {{"name", "fullwatt"}, {"version", kVersion}}}};
  json["conclusion"] = headline(explanation, language);
  json.update(model::to_json(explanation));
  if (explanation.verdict.empty()) json["verdict"] = nullptr;
  for (std::size_t i = 0; i < explanation.causes.size(); ++i)
    json["causes"][i]["title"] = catalog::label(explanation.causes[i].id, language);
  json["findings"] = Json::array();
  for (const auto& finding : explanation.findings) json["findings"].push_back(finding_json(finding, language));
  return json;
}

}  // namespace fullwatt::show
