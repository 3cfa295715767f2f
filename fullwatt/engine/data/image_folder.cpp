#include "fullwatt/engine/data/image_folder.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <new>
#include <set>

#include <fmt/format.h>

#include "fullwatt/base/files.hpp"
#include "fullwatt/base/text.hpp"

namespace fullwatt::engine {
namespace {

namespace fs = std::filesystem;
using base::Error;

constexpr std::array<std::string_view, 3> kRead{".jpg", ".jpeg", ".png"};
/// torchvision counts these as samples: to pass over them would number the others differently.
constexpr std::array<std::string_view, 6> kRefused{".bmp", ".pgm", ".ppm", ".tif", ".tiff", ".webp"};
constexpr std::size_t kMostFileBytes = std::size_t{1} << 30U;  ///< more than the most pixels take, uncompressed

bool is_one_of(std::string_view extension, std::span<const std::string_view> extensions) {
  return std::ranges::find(extensions, extension) != extensions.end();
}

std::unexpected<Error> failed(const std::string& path, const Error& error) {
  return base::fail(error.kind, base::printable(path, 300) + ": " + error.message, error.remedy);
}

std::unexpected<Error> unreadable(const fs::path& folder, const std::error_code& failure) {
  return failed(folder.string(), {Error::Kind::not_found, failure.message(),
                                  "Name a folder that can be read (data: folder in a configuration)."});
}

/// What is in a folder, in the order of the names.
base::Result<std::vector<fs::directory_entry>> entries_of(const fs::path& folder) {
  std::error_code failure;
  std::vector<fs::directory_entry> entries;
  for (fs::directory_iterator at(folder, failure); !failure && at != fs::directory_iterator(); at.increment(failure))
    entries.push_back(*at);
  if (failure) return unreadable(folder, failure);
  std::ranges::sort(entries);
  return entries;
}

bool is_folder(const fs::directory_entry& entry) {
  std::error_code ignored;
  return entry.is_directory(ignored);
}

/// Whether a file is an image; fails for one that should be and cannot be read.
base::Result<bool> is_image(const fs::directory_entry& file) {
  const auto extension = base::lower(file.path().extension().string());
  if (is_one_of(extension, kRefused))
    return failed(file.path().string(), {Error::Kind::bad_input, "images of this kind are not read",
                                         "Convert it to PNG or JPEG, or take it out of the folder."});
  if (!is_one_of(extension, kRead)) return false;
  std::error_code ignored;
  if (!file.is_regular_file(ignored))
    return failed(file.path().string(), {Error::Kind::bad_input, "it is no file, or a link to one that is gone",
                                         "Mend it, or take it out of the folder."});
  return true;
}

/// Tells the images in a folder from further folders.
base::Result<void> look_into(const fs::path& folder, std::vector<std::string>& images, std::vector<fs::path>& folders) {
  const auto entries = entries_of(folder);
  if (!entries) return std::unexpected(entries.error());
  for (const auto& entry : *entries) {
    if (is_folder(entry)) {
      folders.push_back(entry.path());
      continue;
    }
    const auto image = is_image(entry);
    if (!image) return std::unexpected(image.error());
    if (*image) images.push_back(entry.path().string());
  }
  return {};
}

/// The images of a class, by folder and then by name. No folder is entered twice, so that links that lead back end.
base::Result<std::vector<std::string>> images_of(const fs::path& class_folder, const fs::path& root) {
  std::error_code failure;
  std::set<fs::path> entered{fs::canonical(root, failure)};
  std::map<std::string, std::vector<std::string>> images;
  std::vector<fs::path> waiting{class_folder};
  while (!waiting.empty()) {
    const auto folder = std::move(waiting.back());
    waiting.pop_back();
    const auto real_folder = fs::canonical(folder, failure);
    if (failure) return unreadable(folder, failure);
    if (!entered.insert(real_folder).second) continue;
    const auto looked = look_into(folder, images[folder.string()], waiting);
    if (!looked) return std::unexpected(looked.error());
  }
  std::vector<std::string> found;
  for (auto& [folder, paths] : images) std::ranges::move(paths, std::back_inserter(found));
  if (found.empty())
    return failed(class_folder.string(), {Error::Kind::not_found, "no JPEG or PNG file is in this class",
                                          "Take the folder away, or put the images of the class into it."});
  return found;
}

base::Result<std::vector<fs::path>> classes_of(const std::string& folder) {
  const auto entries = entries_of(folder);
  if (!entries) return std::unexpected(entries.error());
  std::vector<fs::path> classes;
  for (const auto& entry : *entries) {
    if (is_folder(entry)) classes.push_back(entry.path());
  }
  if (classes.empty())
    return failed(folder, {Error::Kind::not_found, entries->empty() ? "it is empty" : "it has no folders for classes",
                           "Put the images of each class into a folder of its own, such as cat/1.jpg and dog/1.jpg."});
  return classes;
}

base::Result<std::string> read_file(const std::string& path) {
  auto bytes = base::RealFiles().read(path, kMostFileBytes);
  if (!bytes)
    return base::fail(Error::Kind::unavailable, bytes.error().detail,
                      "The file was there when the folder was opened: look after the disk and its permissions.");
  if (bytes->size() >= kMostFileBytes)
    return base::fail(Error::Kind::bad_input, "it is larger than any image that is read", "Take it out of the folder.");
  return *std::move(bytes);
}

class ImageFolder final : public DataSet {
 public:
  explicit ImageFolder(ImageSize size) : size_(size) {
    fields_ = {{"images", Dtype::uint8, {3, size.height, size.width}}, {"labels", Dtype::int64, {}}};
  }

  void add_class(std::vector<std::string> paths) {
    labels_.resize(labels_.size() + paths.size(), classes_++);
    std::ranges::move(paths, std::back_inserter(paths_));
    samples_ = static_cast<std::int64_t>(paths_.size());
  }

  base::Result<void> fetch(std::size_t field, std::span<const std::int64_t> samples, std::byte* to) const override {
    const bool is_label = fields_[field].dtype == Dtype::int64;
    const auto bytes = fields_[field].sample_bytes();
    Image image;
    for (const auto sample : samples) {
      const auto index = static_cast<std::size_t>(sample);
      if (is_label) {
        std::memcpy(to, &labels_[index], bytes);
      } else if (const auto done = fetch_image(paths_[index], image, to); !done) {
        return failed(paths_[index], done.error());
      }
      to += bytes;
    }
    return {};
  }

  std::string origin(std::size_t /*field*/, std::int64_t sample) const override {
    return base::printable(paths_[static_cast<std::size_t>(sample)], 300);
  }

 private:
  base::Result<void> fetch_image(const std::string& path, Image& image, std::byte* to) const try {
    const auto file = read_file(path);
    if (!file) return std::unexpected(file.error());
    const std::span bytes(reinterpret_cast<const std::uint8_t*>(file->data()), file->size());
    const auto decoded = decode_image(bytes, size_, image);
    if (decoded) scale_and_cut(image, size_, reinterpret_cast<std::uint8_t*>(to));
    return decoded;
  } catch (const std::bad_alloc&) {
    return base::fail(Error::Kind::unavailable, "there is no memory to decode it",
                      "Use fewer workers, or scale the image down.");
  }

  ImageSize size_;
  std::vector<std::string> paths_;
  std::vector<std::int64_t> labels_;
  std::int64_t classes_ = 0;
};

}  // namespace

base::Result<std::unique_ptr<DataSet>> open_image_folder(const std::string& folder, ImageSize size) {
  if (size.height < 1 || size.width < 1 || size.height > kMostPixels / size.width)
    return base::fail(Error::Kind::bad_input,
                      fmt::format("images cannot be made {} x {} large", size.width, size.height),
                      fmt::format("Both sides need a pixel, and all together at most {}.", kMostPixels));
  const auto classes = classes_of(folder);
  if (!classes) return std::unexpected(classes.error());
  auto data = std::make_unique<ImageFolder>(size);
  for (const auto& class_folder : *classes) {
    auto images = images_of(class_folder, folder);
    if (!images) return std::unexpected(images.error());
    data->add_class(*std::move(images));
  }
  return data;
}

}  // namespace fullwatt::engine
