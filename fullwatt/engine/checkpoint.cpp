#include "fullwatt/engine/checkpoint.hpp"

#include <algorithm>
#include <filesystem>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/isfinite.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/engine/tensors.hpp"

namespace fullwatt::engine {
namespace {

namespace fs = std::filesystem;
using base::Error;

constexpr const char* kExtension = ".safetensors";

/// The states from which random numbers are drawn; that of the device only where it trains on one.
std::vector<std::pair<std::string, at::Generator>> generators(at::Device device) {
  std::vector<std::pair<std::string, at::Generator>> found{{"random.cpu", at::detail::getDefaultCPUGenerator()}};
  if (!device.is_cpu()) found.emplace_back("random.device", at::globalContext().defaultGenerator(device));
  return found;
}

base::Result<void> put(const TensorView& from, const at::Tensor& to) {
  const auto type = scalar_type(from.dtype);
  if (!type || at::IntArrayRef(from.shape) != to.sizes())
    return base::fail(Error::Kind::bad_input,
                      "'" + base::printable(from.name, 100) + "' is of another shape or type there",
                      "It was made by another model; the settings under model: must be those of that training.");
  const at::NoGradGuard without_gradients;
  to.copy_(at::from_blob(const_cast<std::byte*>(from.data), from.shape, *type));
  return {};
}

base::Result<void> put_all(const TensorFile& file, const Named& tensors) {
  for (const auto& [name, tensor] : tensors) {
    const auto* from = file.find(name);
    if (from == nullptr)
      return base::fail(Error::Kind::bad_input, "'" + base::printable(name, 100) + "' is not in it",
                        "It was made by another model; the settings under model: must be those of that training.");
    if (const auto done = put(*from, tensor); !done) return done;
  }
  return {};
}

base::Result<Position> position_of(const Metadata& metadata) {
  Position position;
  for (const auto& [name, number] :
       {std::pair{"epoch", &position.epoch}, {"batch", &position.batch}, {"step", &position.step}}) {
    const auto found = metadata.find(name);
    const auto told = found != metadata.end() ? base::number<std::uint64_t>(found->second) : std::nullopt;
    if (!told)
      return base::fail(Error::Kind::bad_input, std::string("it does not tell its ") + name + ": it is no checkpoint",
                        "Weights alone are for --initial; take the file out of this folder.");
    *number = *told;
  }
  return position;
}

std::unexpected<Error> in_file(const std::string& path, Error error) {
  error.message = base::printable(path, 300) + ": " + error.message;
  return std::unexpected(std::move(error));
}

}  // namespace

base::Result<void> save_checkpoint(const std::string& path, const Named& tensors, at::Device device,
                                   const Position& position) {
  auto all = tensors;
  for (const auto& [name, generator] : generators(device)) all.emplace_back(name, generator.get_state());
  std::vector<TensorView> views;
  for (auto& [name, tensor] : all) {
    tensor = tensor.detach().cpu().contiguous();
    const auto dtype = dtype_of(tensor.scalar_type());
    if (!dtype)
      return base::fail(Error::Kind::bad_input, "'" + name + "' is of a type that checkpoints do not hold",
                        "Keep parameters and buffers as real numbers, such as float32, or as whole ones.");
    if (tensor.is_floating_point() && !at::isfinite(tensor).all().item<bool>())
      return base::fail(Error::Kind::bad_input,
                        "'" + name + "' holds what is no number any more after step " + std::to_string(position.step),
                        "It is not saved, and the checkpoints before it are whole. A smaller optimizer.lr, or "
                        "train.clip, may help.");
    views.push_back({name, *dtype, tensor.sizes().vec(), static_cast<const std::byte*>(tensor.const_data_ptr())});
  }
  return write_tensors(path, views,
                       {{"format", "pt"},
                        {"epoch", std::to_string(position.epoch)},
                        {"batch", std::to_string(position.batch)},
                        {"step", std::to_string(position.step)}});
}

base::Result<Position> load_checkpoint(const std::string& path, const Named& tensors, at::Device device) {
  const auto file = TensorFile::open(path);
  if (!file) return std::unexpected(file.error());
  const auto position = position_of(file->metadata());
  if (!position) return in_file(path, position.error());
  if (const auto done = put_all(*file, tensors); !done) return in_file(path, done.error());
  for (auto& [name, generator] : generators(device)) {
    const auto* from = file->find(name);
    if (from == nullptr) continue;  // it was trained elsewhere
    auto state = generator.get_state();
    if (const auto done = put(*from, state); !done) return in_file(path, done.error());
    generator.set_state(state);
  }
  return position;
}

base::Result<void> load_tensors(const std::string& path, const Named& tensors) {
  const auto file = TensorFile::open(path);
  if (!file) return std::unexpected(file.error());
  if (const auto done = put_all(*file, tensors); !done) return in_file(path, done.error());
  return {};
}

std::vector<std::string> checkpoints_in(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(folder, failure)) {
    const auto name = entry.path().filename().string();
    if (name.starts_with("step-") && name.ends_with(kExtension)) found.push_back(entry.path().string());
  }
  std::ranges::sort(found, std::ranges::greater());
  return found;
}

void remove_old_checkpoints(const std::string& folder) {
  constexpr std::size_t kKept = 3;
  const auto all = checkpoints_in(folder);
  std::error_code ignored;
  for (std::size_t i = kKept; i < all.size(); ++i) fs::remove(all[i], ignored);
}

base::Result<std::string> put_checkpoints_aside(const std::string& folder) {
  const auto all = checkpoints_in(folder);
  if (all.empty()) return "";
  auto aside = fs::path(folder) / "earlier";
  for (int number = 2; fs::exists(aside); ++number) aside.replace_filename("earlier-" + std::to_string(number));
  std::error_code failure;
  fs::create_directories(aside, failure);
  for (const auto& path : all) {
    if (!failure) fs::rename(path, aside / fs::path(path).filename(), failure);
  }
  if (failure)
    return base::fail(Error::Kind::refused, base::printable(aside.string(), 300) + ": " + failure.message(),
                      "Name another folder under output: folder.");
  return aside.string();
}

std::string checkpoint_path(const std::string& folder, std::uint64_t step) {
  constexpr std::size_t kDigits = 12;
  auto number = std::to_string(step);
  number.insert(0, kDigits - std::min(kDigits, number.size()), '0');
  return (fs::path(folder) / ("step-" + number + kExtension)).string();
}

}  // namespace fullwatt::engine
