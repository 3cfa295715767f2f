#include "fullwatt/engine/open_samples.hpp"

#include <algorithm>

#include "fullwatt/base/text.hpp"
#include "fullwatt/engine/data/image_folder.hpp"
#include "fullwatt/engine/tensors.hpp"

namespace fullwatt::engine {
namespace {

using base::Error;

base::Result<void> check_name(const Config& config, const Task& task, const std::string& name) {
  const auto needed = task.fields();
  if (std::ranges::find(needed, name) != needed.end()) return {};
  return base::fail(Error::Kind::bad_input,
                    "the model " + config.model.name + " has no field '" + base::printable(name, 60) + "'",
                    "Its fields are: " + base::join(needed, ", "));
}

base::Result<std::unique_ptr<DataSet>> open_arrays(const Config& config, const Task& task) {
  auto patterns = config.data.fields;
  for (const auto& [name, pattern] : patterns) {
    if (const auto known = check_name(config, task, name); !known) return std::unexpected(known.error());
  }
  for (const auto& field : task.fields()) patterns.try_emplace(field, "*" + field + ".npy");
  return open_npy_folder(config.data.folder, patterns);
}

base::Result<void> check_fields(const Config& config, const Task& task, const DataSet& data) {
  for (const auto& field : data.fields()) {
    if (const auto known = check_name(config, task, field.name); !known) return known;
    if (!scalar_type(field.dtype))
      return base::fail(Error::Kind::bad_input,
                        "the field " + field.name + " holds " + std::string(to_string(field.dtype)) +
                            ", which torch cannot compute with",
                        "Save it as int32 or int64.");
  }
  const auto needed = task.fields();
  for (const auto& name : needed) {
    if (std::ranges::find(data.fields(), name, &Field::name) == data.fields().end())
      return base::fail(Error::Kind::bad_input, "the data have no field '" + name + "'",
                        "The model " + config.model.name + " needs: " + base::join(needed, ", "));
  }
  return {};
}

}  // namespace

base::Result<std::unique_ptr<DataSet>> open_samples(const Config& config, const Task& task) {
  auto data = config.data.format == "images"
                  ? open_image_folder(config.data.folder, {config.data.image_height, config.data.image_width})
                  : open_arrays(config, task);
  if (!data) return data;
  if (const auto checked = check_fields(config, task, **data); !checked) return std::unexpected(checked.error());
  return data;
}

}  // namespace fullwatt::engine
