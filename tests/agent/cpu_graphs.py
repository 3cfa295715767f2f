"""CUDA graphs for tests without a GPU: what is captured is recorded operation by operation, and replayed with the same tensors in the same memory.

As on a GPU a replay reads its inputs where they were and writes its outputs where they were; what was computed by Python is not computed again. Unlike there the
operations of a capture are also carried out.
"""

import contextlib
from unittest import mock

import support  # noqa: F401  (puts the agent on the path)
import torch
import torch._dynamo  # looks for CUDA's own streams when it is imported
from fullwatt.fixes import captured
from torch.utils._python_dispatch import TorchDispatchMode


class Graph:
    """The recorded operations, with what they were given and what they gave."""

    def __init__(self):
        self._operations = []

    def replay(self):
        with torch.no_grad():
            for function, args, kwargs, result in self._operations:
                for old, new in zip(tensors(result), tensors(function(*args, **kwargs))):
                    if old.untyped_storage().data_ptr() != new.untyped_storage().data_ptr():  # else a view, or the tensor that was written
                        old.data.copy_(new)

    def add(self, *operation):
        self._operations.append(operation)


class Recording(TorchDispatchMode):
    """Puts all operations into a graph."""

    def __init__(self, graph, **_):
        super().__init__()
        self._graph = graph

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self._graph.add(function, args, kwargs or {}, result)
        return result


def tensors(result):
    return [leaf for leaf in torch.utils._pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def in_place():
    """A context in which they stand in for those of CUDA, for tensors on the CPU."""
    stream = mock.MagicMock()
    names = {"CUDAGraph": Graph, "graph": Recording, "Stream": stream, "current_stream": stream, "stream": lambda _: contextlib.nullcontext(),
             "graph_pool_handle": lambda: None, "memory_reserved": lambda: 0, "mem_get_info": lambda: (1 << 30, 1 << 30)}
    stack = contextlib.ExitStack()
    for name, stand_in in names.items():
        stack.enter_context(mock.patch.object(torch.cuda, name, stand_in))
    stack.enter_context(mock.patch.object(captured, "KIND", "cpu"))
    return stack
