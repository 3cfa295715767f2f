#pragma once

/// The Python interpreter that this library was loaded into, by the functions of its C interface that are stable.
namespace fullwatt::vendor::python {

/// Python 3.11 and newer; frames of older ones outlive their execution, so that Python code may look at them.
bool stacks_known();

/// The stack of another Python thread: a new tuple (code, index of the last instruction, code, …), innermost first, at
/// most 120 frames. To be called with the interpreter's lock held.
///
/// Python code that looks at frames may lose the lock in the middle, and the frames that torch.compile evaluates then
/// go away under it (seen as a crash in PyFrame_GetCode, Python 3.11). Here the lock is held from beginning to end, no
/// garbage is collected, and no frame outlives the call.
void* stack_of(unsigned long thread);

}  // namespace fullwatt::vendor::python
