#include "fullwatt/vendor/nvrtc/compiler.hpp"

#include <algorithm>
#include <array>

#include "fullwatt/base/text.hpp"
#include "fullwatt/vendor/nvrtc/abi.hpp"

namespace fullwatt::vendor::nvrtc {
namespace {

using base::Error;

constexpr std::array kNeeded{"nvrtcGetErrorString",    "nvrtcGetNumSupportedArchs",
                             "nvrtcGetSupportedArchs", "nvrtcCreateProgram",
                             "nvrtcCompileProgram",    "nvrtcDestroyProgram",
                             "nvrtcGetCUBINSize",      "nvrtcGetCUBIN",
                             "nvrtcGetPTXSize",        "nvrtcGetPTX",
                             "nvrtcGetProgramLogSize", "nvrtcGetProgramLog"};

/// One source while it is compiled.
class Compilation {
 public:
  explicit Compilation(const base::Library& library) : library_(library) {}
  Compilation(const Compilation&) = delete;
  Compilation& operator=(const Compilation&) = delete;
  ~Compilation() {
    if (program_ != nullptr) library_.find<abi::DestroyProgram>("nvrtcDestroyProgram")(&program_);
  }

  base::Result<void> run(const std::string& source, const std::vector<std::string>& options) {
    const auto create = library_.find<abi::CreateProgram>("nvrtcCreateProgram");
    if (const auto code = create(&program_, source.c_str(), nullptr, 0, nullptr, nullptr); code != 0)
      return failed("nvrtcCreateProgram", code, {});
    std::vector<const char*> arguments;
    for (const auto& option : options) arguments.push_back(option.c_str());
    const auto compile = library_.find<abi::CompileProgram>("nvrtcCompileProgram");
    if (const auto code = compile(program_, static_cast<int>(arguments.size()), arguments.data()); code != 0)
      return failed("nvrtcCompileProgram", code, text("nvrtcGetProgramLogSize", "nvrtcGetProgramLog"));
    return {};
  }

  /// What one of the pairs of functions gives.
  std::string text(const char* size, const char* read) const {
    std::size_t bytes = 0;
    if (library_.find<abi::GetSize>(size)(program_, &bytes) != 0) return {};
    std::string found(bytes, '\0');
    if (library_.find<abi::GetText>(read)(program_, found.data()) != 0) return {};
    return found;
  }

 private:
  std::unexpected<Error> failed(const char* function, abi::Result code, const std::string& log) const {
    constexpr std::size_t kBeginning = 300;
    const auto* const why = library_.find<abi::GetErrorString>("nvrtcGetErrorString")(code);
    const auto more = std::string(base::trim(log.substr(0, log.find('\0'))));
    return base::fail(Error::Kind::unavailable, std::string(function) + ": " + why +
                                                    (more.empty() ? "" : ", " + base::printable(more, kBeginning)));
  }

  const base::Library& library_;
  abi::Program program_ = nullptr;
};

}  // namespace

base::Result<Compiler> Compiler::load(const std::string& name) {
  auto library = base::Library::load(name);
  if (!library) return std::unexpected(library.error());
  for (const auto* const function : kNeeded) {
    if (library->find<void()>(function) == nullptr)
      return base::fail(Error::Kind::unavailable, name + " has no " + function);
  }
  return Compiler(*std::move(library));
}

std::vector<int> Compiler::architectures() const {
  int count = 0;
  if (library_.find<abi::GetArchitectureCount>("nvrtcGetNumSupportedArchs")(&count) != 0) return {};
  std::vector<int> found(static_cast<std::size_t>(count));
  if (library_.find<abi::GetArchitectures>("nvrtcGetSupportedArchs")(found.data()) != 0) return {};
  std::ranges::sort(found);
  return found;
}

base::Result<std::string> Compiler::compile(const std::string& source, const std::vector<std::string>& options,
                                            int architecture) const {
  const auto known = architectures();
  const auto above = std::ranges::upper_bound(known, architecture);
  if (above == known.begin())
    return base::fail(Error::Kind::unavailable, "NVRTC has no architecture " + std::to_string(architecture));
  const int nearest = *std::prev(above);
  const bool is_exact = nearest == architecture;
  auto all = options;
  all.push_back((is_exact ? "-arch=sm_" : "-arch=compute_") + std::to_string(nearest));
  Compilation compilation(library_);
  if (const auto done = compilation.run(source, all); !done) return std::unexpected(done.error());
  auto image = is_exact ? compilation.text("nvrtcGetCUBINSize", "nvrtcGetCUBIN")
                        : compilation.text("nvrtcGetPTXSize", "nvrtcGetPTX");
  if (image.empty()) return base::fail(Error::Kind::unavailable, "NVRTC compiled to nothing");
  return image;
}

}  // namespace fullwatt::vendor::nvrtc
