#pragma once

#include <span>
#include <string_view>

#include "catalog/catalog.hpp"
#include "catalog/fixes.hpp"
#include "catalog/gpus.hpp"
#include "catalog/starting_points.hpp"

namespace fullwatt::catalog {

struct Code {
  int value;
  std::string_view name;
};

struct Label {
  std::string_view key;
  Words words;
};

/// What `catalog_compile` made of the YAML files.
struct Tables {
  std::span<const Entry> entries;
  std::span<const Architecture> architectures;
  std::span<const CudaFloor> cuda_floors;
  std::span<const BranchCuda> branch_cudas;
  std::span<const TorchWheel> torch_wheels;
  std::span<const Code> nvml_codes;
  std::span<const Code> cuda_codes;
  std::span<const Label> labels;
  std::span<const GpuCard> gpu_cards;
  std::span<const GpuRate> gpu_rates;
  std::span<const Fix> fixes;
  std::span<const StartingCard> starting_cards;  ///< by falling memory, the last one fits all
  std::span<const StartingData> starting_data;   ///< by falling number, the last one fits all
};
const Tables& tables();

}  // namespace fullwatt::catalog
