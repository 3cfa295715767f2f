"""Keeps the compiler off our code: it tries to compile whatever is called from a compiled region."""

import inspect
import sys
import types


def switch(torch):
    """The function that switches the compiler off (None) for this thread and returns what to switch it to again."""
    try:
        return torch._C._dynamo.eval_frame.set_eval_frame
    except AttributeError:
        return None


def is_tracing(torch):
    """A function that is True while the compiler traces its caller: then nothing of ours may enter the graph."""
    return getattr(torch.compiler, "is_dynamo_compiling", None) or torch._utils.is_compiling


def skip_our_code(torch):
    """Marks the code of this package so that the compiler runs it as it is."""
    skip = _skip_function(torch)
    if skip is None:
        return
    for name, module in list(sys.modules.items()):
        if name == "fullwatt" or name.startswith("fullwatt."):
            for code in _codes_of(module):
                skip(code)


def _skip_function(torch):
    try:
        frame = torch._C._dynamo.eval_frame
    except AttributeError:
        return None
    if hasattr(frame, "skip_code"):  # before torch 2.6
        return frame.skip_code
    if not hasattr(frame, "set_code_exec_strategy"):
        return None
    strategy = frame._FrameExecStrategy(frame._FrameAction.SKIP, frame._FrameAction.DEFAULT)
    return lambda code: frame.set_code_exec_strategy(code, strategy)


def _codes_of(module):
    """All code objects defined in a module, those inside functions too."""
    waiting = []
    for value in list(vars(module).values()):
        if getattr(value, "__module__", None) != module.__name__:
            continue
        members = [value] + (list(vars(value).values()) if isinstance(value, type) else [])
        for member in members:
            code = getattr(inspect.unwrap(getattr(member, "__func__", member)), "__code__", None)  # a decorator's own code is not ours
            if code is not None:
                waiting.append(code)
    while waiting:
        code = waiting.pop()
        yield code
        waiting.extend(constant for constant in code.co_consts if isinstance(constant, types.CodeType))
