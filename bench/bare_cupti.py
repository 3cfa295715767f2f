"""CUPTI's records of kernels, copies and fills, switched on, thrown away and taken out again: the least that any tool with kernel times can cost. A CUPTI that
stays in the process after its window makes the steps beside it longer, too, and hides a part of its cost."""

import ctypes
import re

import torch

KERNELS_COPIES_FILLS = (10, 1, 2)  # CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, _MEMCPY, _MEMSET
BUFFER_BYTES = 8 << 20

_REQUESTED = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t))
_COMPLETED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)


class BareCupti:
    """Has the methods of torch.profiler.profile that the benchmark uses."""

    def __init__(self):
        with open("/proc/self/maps", encoding="utf-8") as maps:
            self._library = ctypes.CDLL(re.search(r"/\S*libcupti\.so\S*", maps.read()).group())  # the one that torch loaded
        self._buffers = {}
        self._callbacks = _REQUESTED(self._give), _COMPLETED(self._take)

    def _give(self, buffer, size, most_records):
        memory = ctypes.create_string_buffer(BUFFER_BYTES + 8)
        address = (ctypes.addressof(memory) + 7) & ~7
        self._buffers[address] = memory
        buffer[0], size[0], most_records[0] = address, BUFFER_BYTES, 0

    def _take(self, context, stream, buffer, size, valid):
        self._buffers.pop(buffer, None)

    def _call(self, name, *arguments):
        code = getattr(self._library, name)(*arguments)
        if code != 0:
            raise RuntimeError(f"{name} returned {code}")

    def start(self):
        self._call("cuptiActivityRegisterCallbacks", *self._callbacks)
        for kind in KERNELS_COPIES_FILLS:
            self._call("cuptiActivityEnable", kind)

    def stop(self):
        for kind in KERNELS_COPIES_FILLS:
            self._call("cuptiActivityDisable", kind)
        self._call("cuptiActivityFlushAll", 1)
        torch.cuda.synchronize()
        self._call("cuptiFinalize")
