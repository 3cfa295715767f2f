#include "fullwatt/show/finding_json.hpp"

#include "fullwatt/show/words.hpp"

namespace fullwatt::show {

using model::Json;

Json finding_json(const model::Finding& finding, catalog::Language language) {
  auto json = model::to_json(finding);
  const auto words = render(finding, language);
  json["title"] = words.title;
  json["cause"] = words.cause;
  json["remedy"] = Json::array();
  for (const auto& step : words.remedy) {
    json["remedy"].push_back({{"text", step.text}, {"run", step.run.empty() ? Json(nullptr) : Json(step.run)}});
  }
  return json;
}

}  // namespace fullwatt::show
