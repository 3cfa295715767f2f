#include "fullwatt/engine/checkpoint.hpp"

#include <algorithm>
#include <filesystem>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/from_blob.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/engine/tensors.hpp"

namespace fullwatt::engine {
namespace {

namespace fs = std::filesystem;
using base::Error;
using Named = std::vector<std::pair<std::string, at::Tensor>>;

constexpr const char* kRandom = "random.cpu";
constexpr const char* kExtension = ".safetensors";

Named weights_of(const torch::nn::Module& network) {
  Named found;
  for (const auto& item : network.named_parameters()) found.emplace_back(item.key(), item.value());
  for (const auto& item : network.named_buffers()) found.emplace_back(item.key(), item.value());
  return found;
}

Named state_of(const torch::nn::Module& network, AdamW& optimizer) {
  Named found;
  std::size_t i = 0;
  for (const auto& item : network.named_parameters()) {
    found.emplace_back("optimizer.mean." + item.key(), optimizer.state().means[i]);
    found.emplace_back("optimizer.square." + item.key(), optimizer.state().squares[i]);
    found.emplace_back("optimizer.step." + item.key(), optimizer.state().steps[i++]);
  }
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

std::uint64_t number_of(const Metadata& metadata, const std::string& name) {
  const auto found = metadata.find(name);
  return found != metadata.end() ? base::number<std::uint64_t>(found->second).value_or(0) : 0;
}

std::unexpected<Error> in_file(const std::string& path, Error error) {
  error.message = base::printable(path, 300) + ": " + error.message;
  return std::unexpected(std::move(error));
}

}  // namespace

base::Result<void> save_checkpoint(const std::string& path, const torch::nn::Module& network, AdamW& optimizer,
                                   const Position& position) {
  auto tensors = weights_of(network);
  std::ranges::move(state_of(network, optimizer), std::back_inserter(tensors));
  tensors.emplace_back(kRandom, at::detail::getDefaultCPUGenerator().get_state());
  std::vector<TensorView> views;
  for (auto& [name, tensor] : tensors) {
    tensor = tensor.detach().cpu().contiguous();
    const auto dtype = dtype_of(tensor.scalar_type());
    if (!dtype) return base::fail(Error::Kind::bad_input, "'" + name + "' is of a type that checkpoints do not hold");
    views.push_back({name, *dtype, tensor.sizes().vec(), static_cast<const std::byte*>(tensor.const_data_ptr())});
  }
  return write_tensors(path, views,
                       {{"format", "pt"},
                        {"epoch", std::to_string(position.epoch)},
                        {"batch", std::to_string(position.batch)},
                        {"step", std::to_string(position.step)}});
}

base::Result<Position> load_checkpoint(const std::string& path, torch::nn::Module& network, AdamW& optimizer) {
  const auto file = TensorFile::open(path);
  if (!file) return std::unexpected(file.error());
  auto tensors = weights_of(network);
  std::ranges::move(state_of(network, optimizer), std::back_inserter(tensors));
  if (const auto done = put_all(*file, tensors); !done) return in_file(path, done.error());
  if (const auto* random = file->find(kRandom)) {
    auto state = at::detail::getDefaultCPUGenerator().get_state();
    if (const auto done = put(*random, state); !done) return in_file(path, done.error());
    auto generator = at::detail::getDefaultCPUGenerator();
    generator.set_state(state);
  }
  const auto& metadata = file->metadata();
  return Position{number_of(metadata, "epoch"), number_of(metadata, "batch"), number_of(metadata, "step")};
}

base::Result<void> load_weights(const std::string& path, torch::nn::Module& network) {
  const auto file = TensorFile::open(path);
  if (!file) return std::unexpected(file.error());
  if (const auto done = put_all(*file, weights_of(network)); !done) return in_file(path, done.error());
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

std::string checkpoint_path(const std::string& folder, std::uint64_t step) {
  constexpr std::size_t kDigits = 12;
  auto number = std::to_string(step);
  number.insert(0, kDigits - std::min(kDigits, number.size()), '0');
  return (fs::path(folder) / ("step-" + number + kExtension)).string();
}

}  // namespace fullwatt::engine
