#include "fullwatt/engine/pictures.hpp"

#include <algorithm>

namespace fullwatt::engine {
namespace {

std::unexpected<base::Error> refuse(std::string what, std::string remedy) {
  return base::fail(base::Error::Kind::bad_input, std::move(what), std::move(remedy));
}

base::Result<void> check_shape(const Config& config, const std::vector<std::int64_t>& shape) {
  const auto& augment = config.augment;
  if (shape.size() != 3)
    return refuse("the field images must have channels, rows and columns, to be augmented or normalised",
                  "Save it as an array [samples, channels, height, width].");
  const auto channels = static_cast<std::size_t>(shape[0]);
  const auto given = config.data.normalisation.mean.size();
  if (given != 0 && given != channels)
    return refuse("data.mean and data.std have " + std::to_string(given) + " numbers, and the pictures " +
                      std::to_string(channels) + " channels",
                  "Give one number for each channel.");
  if (const auto smallest = std::min(shape[1], shape[2]); augment.shift >= smallest)
    return refuse("augment.shift: " + std::to_string(augment.shift) + " is not smaller than the pictures, which have " +
                      std::to_string(smallest) + " pixels",
                  "Take a smaller one.");
  return {};
}

}  // namespace

base::Result<void> check_pictures(const Config& config, const Task& task, const DataSet& data) {
  const auto& augment = config.augment;
  if (!augment.moves() && !augment.colours() && config.data.normalisation.mean.empty()) return {};
  const auto images = std::ranges::find(data.fields(), "images", &Field::name);
  if (images == data.fields().end())
    return refuse("augment:, data.mean and data.std are for pictures, and the model " + config.model.name + " has none",
                  "Leave them out.");
  if (task.has_places() && augment.moves())
    return refuse("augment.flip and augment.shift would move the pictures of the model " + config.model.name +
                      ", and not the places in them that it learns",
                  "Leave both out; brightness, contrast and noise are possible.");
  return check_shape(config, images->shape);
}

}  // namespace fullwatt::engine
