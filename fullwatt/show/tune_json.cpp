#include "fullwatt/show/tune_json.hpp"

#include "fullwatt/show/version.hpp"

namespace fullwatt::show {

model::Json tune_json(const model::Tuning& tuning) {
  model::Json json{{"schema_version", model::Tuning::kSchemaVersion},
                   {"tool", {{"name", "fullwatt"}, {"version", kVersion}}},
                   {"proved", tuning.is_proved()}};
  json.update(model::to_json(tuning));
  for (std::size_t i = 0; i < tuning.tried.size(); ++i) {
    if (tuning.tried[i].kept) json["tried"][i]["priority"] = tuning.tried[i].priority();
    if (const auto steps = tuning.tried[i].steps_to_pay()) json["tried"][i]["steps_to_pay"] = *steps;
  }
  return json;
}

}  // namespace fullwatt::show
