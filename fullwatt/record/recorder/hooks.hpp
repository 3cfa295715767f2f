#pragma once

#include "fullwatt/record/recorder/recorder.h"
#include "fullwatt/vendor/python/function.hpp"

namespace fullwatt::record {

/// The hooks of a steady step as Python functions: in a training they are called out of the cold, and there a few lines
/// of Python cost ten times as much as a loop over them shows. Each does what the hook of the same name in
/// python/fullwatt/hooks does in the steady state, and leaves everything else to that one.
enum class HookKind { next_batch, backward, before_step, after_step };

/// A new Python function around `original`. `python_hook` is called outside the steady state; `then` with the iterator
/// when its batches are over, or with what the recorder asks for after a step. Null where the interpreter lacks what is
/// needed.
vendor::python::Object* make_hook(HookKind kind, fullwatt_training* training, vendor::python::Object* original,
                                  vendor::python::Object* python_hook, vendor::python::Object* then);

}  // namespace fullwatt::record
