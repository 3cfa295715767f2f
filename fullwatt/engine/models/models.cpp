// The models that `fullwatt train` knows, by name.

#include <algorithm>
#include <utility>

#include "fullwatt/base/text.hpp"
#include "fullwatt/engine/model_library.hpp"

namespace fullwatt::engine {
namespace {

struct Entry {
  std::string_view name;
  std::unique_ptr<Task> (*make)(const ModelConfig&);
};
constexpr Entry kModels[] = {
    {"gpt2", make_gpt2}, {"keypoint", make_keypoint}, {"lstm", make_lstm}, {"resnet50", make_resnet}};

}  // namespace

base::Result<std::unique_ptr<Task>> make_task(const ModelConfig& config) {
  if (!config.library.empty()) return make_own_task(config);
  std::vector<std::string_view> names;
  for (const auto& entry : kModels) {
    if (entry.name == config.name) return entry.make(config);
    names.push_back(entry.name);
  }
  const auto near = base::nearest(config.name, names);
  auto message = "there is no model '" + base::printable(config.name, 60) + "'";
  if (!near.empty()) message += "; did you mean '" + std::string(near) + "'?";
  return base::fail(base::Error::Kind::bad_input, message,
                    "Known are: " + base::join({names.begin(), names.end()}, ", "));
}

}  // namespace fullwatt::engine
