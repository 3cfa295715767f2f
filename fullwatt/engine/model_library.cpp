#include "fullwatt/engine/model_library.hpp"

#include <filesystem>

#include "fullwatt/base/library.hpp"
#include "fullwatt/base/text.hpp"
#include "fullwatt/engine/own_model.hpp"

namespace fullwatt::engine {

base::Result<std::unique_ptr<Task>> make_own_task(const ModelConfig& config) {
  constexpr const char* kEntry = "fullwatt_model_2";  // the number counts changes of Task
  constexpr const char* kRebuild =
      "Build it with the fullwatt and the PyTorch that are installed (examples/own_model).";
  const auto name = base::printable(config.library, 300);
  const auto refuse = [](const std::string& what, const char* remedy) {
    return base::fail(base::Error::Kind::bad_input, what, remedy);
  };
  std::error_code failure;
  const auto path = std::filesystem::absolute(config.library, failure).string();  // not to be looked for elsewhere
  auto loaded = base::Library::load(path);
  if (!loaded) return refuse("model.library: " + base::printable(loaded.error().message, 300), kRebuild);
  const auto& library = *new base::Library(*std::move(loaded));  // never closed: the model's code is in it
  auto* const entry = library.find<const OwnModel*()>(kEntry);
  if (entry == nullptr)
    return refuse(name + " has no model for this fullwatt", "FULLWATT_MODEL(Class) belongs at the end of its file.");
  const auto& model = *entry();
  if (std::string_view(model.torch) != TORCH_VERSION)
    return refuse(name + " was built for PyTorch " + base::printable(model.torch, 40) + ", and this is " TORCH_VERSION,
                  kRebuild);
  if (model.config_bytes != sizeof(ModelConfig)) return refuse(name + " was built for another fullwatt", kRebuild);
  try {
    return model.make(config);
  } catch (const std::exception& error) {
    return refuse(name + ": " + base::printable(error.what(), 300), "The settings under model: are its own.");
  }
}

}  // namespace fullwatt::engine
