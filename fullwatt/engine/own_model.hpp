#pragma once

#include <torch/version.h>

#include "fullwatt/engine/task.hpp"

/// For a model of one's own, in a shared library that `model.library` names: a class derived from Task, made from a
/// ModelConfig, and FULLWATT_MODEL(Class) at the end of its file. examples/own_model/ is one.
namespace fullwatt::engine {

/// What such a library tells, so that one of another kind is refused instead of crashing: classes have no common ABI.
struct OwnModel {
  const char* torch;
  std::size_t config_bytes;
  std::unique_ptr<Task> (*make)(const ModelConfig& config);
};

}  // namespace fullwatt::engine

#define FULLWATT_MODEL(Class)                                                                        \
  extern "C" const fullwatt::engine::OwnModel* fullwatt_model_2() {                                  \
    static const fullwatt::engine::OwnModel kModel{                                                  \
        TORCH_VERSION, sizeof(fullwatt::engine::ModelConfig),                                        \
        [](const fullwatt::engine::ModelConfig& config) -> std::unique_ptr<fullwatt::engine::Task> { \
          return std::make_unique<Class>(config);                                                    \
        }};                                                                                          \
    return &kModel;                                                                                  \
  }
