#pragma once

#include "fullwatt/engine/data/data_set.hpp"
#include "fullwatt/engine/data/image.hpp"

namespace fullwatt::engine {

/// JPEG and PNG files in a folder with one subfolder for each class, numbered and ordered as torchvision's ImageFolder
/// does it. Fields: "images", uint8 [3, height, width] in red, green, blue, made to the wanted size by `scale_and_cut`;
/// "labels", int64 []. Links are followed, but within a class each folder is entered only once.
base::Result<std::unique_ptr<DataSet>> open_image_folder(const std::string& folder, ImageSize size);

}  // namespace fullwatt::engine
