#include "catalog/catalog.hpp"

#include <algorithm>
#include <vector>

#include "catalog/tables.hpp"

#include "fullwatt/base/text.hpp"
#include "fullwatt/base/version.hpp"

namespace fullwatt::catalog {
namespace {

std::string_view code_name(std::span<const Code> codes, int value) {
  const auto at = std::ranges::find(codes, value, &Code::value);
  return at == codes.end() ? std::string_view{"unknown code"} : at->name;
}

}  // namespace

std::span<const Entry> entries() {
  return tables().entries;
}

const Entry* find(std::string_view id) {
  const auto at = std::ranges::find(entries(), id, &Entry::id);
  return at == entries().end() ? nullptr : &*at;
}

std::string_view nearest(std::string_view id) {
  std::vector<std::string_view> ids;
  for (const auto& entry : entries()) ids.push_back(entry.id);
  return base::nearest(id, ids);
}

std::string_view label(std::string_view key, Language language) {
  const auto at = std::ranges::find(tables().labels, key, &Label::key);
  return at == tables().labels.end() ? key : at->words.in(language);
}

std::span<const Architecture> architectures() {
  return tables().architectures;
}

const Architecture* architecture_of(int pci_device) {
  const auto holds = [&](const Architecture& a) { return pci_device >= a.first_device && pci_device <= a.last_device; };
  const auto at = std::ranges::find_if(architectures(), holds);
  return at == architectures().end() ? nullptr : &*at;
}

std::span<const CudaFloor> cuda_floors() {
  return tables().cuda_floors;
}

std::span<const BranchCuda> branch_cudas() {
  return tables().branch_cudas;
}

std::span<const TorchWheel> torch_wheels() {
  return tables().torch_wheels;
}

std::string_view wheel_for(const std::string& driver_version, const std::string& compute_capability) {
  const base::Version driver(driver_version);
  const base::Version capability(compute_capability);
  if (capability.known() && capability < base::Version("7.5")) return driver < base::Version("525") ? "cu118" : "cu126";
  if (!driver.known() || driver >= base::Version("580")) return "cu130";
  if (capability >= base::Version("10.0")) return "cu128";
  return driver < base::Version("525") ? "cu118" : "cu126";
}

std::string_view nvml_code_name(int code) {
  return code_name(tables().nvml_codes, code);
}

std::string_view cuda_code_name(int code) {
  return code_name(tables().cuda_codes, code);
}

}  // namespace fullwatt::catalog
