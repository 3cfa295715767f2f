#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include "fullwatt/engine/data/npy.hpp"

/// Between our names for kinds of numbers and torch's.
namespace fullwatt::engine {

inline std::optional<at::ScalarType> scalar_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::boolean:
      return at::kBool;
    case Dtype::int8:
      return at::kChar;
    case Dtype::uint8:
      return at::kByte;
    case Dtype::int16:
      return at::kShort;
    case Dtype::int32:
      return at::kInt;
    case Dtype::int64:
      return at::kLong;
    case Dtype::float16:
      return at::kHalf;
    case Dtype::float32:
      return at::kFloat;
    case Dtype::float64:
      return at::kDouble;
    case Dtype::bfloat16:
      return at::kBFloat16;
    case Dtype::uint16:
    case Dtype::uint32:
    case Dtype::uint64:
      break;
  }
  return std::nullopt;
}

inline std::optional<Dtype> dtype_of(at::ScalarType type) {
  for (const auto dtype : {Dtype::boolean, Dtype::int8, Dtype::uint8, Dtype::int16, Dtype::int32, Dtype::int64,
                           Dtype::float16, Dtype::float32, Dtype::float64, Dtype::bfloat16}) {
    if (scalar_type(dtype) == type) return dtype;
  }
  return std::nullopt;
}

}  // namespace fullwatt::engine
