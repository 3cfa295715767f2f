"""The memory of batches. Each is the user's as long as a tensor of it lives; the loader's threads fill other memory meanwhile."""

import ctypes
import mmap
import weakref


class Ordinary:
    """Memory that is used again once its tensor is gone: new memory would cost a page fault for every 4 KB."""

    def __init__(self, torch, fields, batch, most_free):
        self._torch, self._fields = torch, fields
        self._most_free = most_free  # blocks of a field that are kept for later
        self._types = [ctypes.c_ubyte * max(1, batch * field.sample_bytes) for field in fields]
        self._free = [[] for _ in fields]

    def take(self, index):
        """A block for one field of a batch: its address, and what keeps it."""
        free, kind = self._free[index], self._types[index]
        try:
            pages = free.pop()
        except IndexError:
            # Private: what a forked child fetches must not appear in the parent's batches.
            pages = mmap.mmap(-1, ctypes.sizeof(kind), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        block = kind.from_buffer(pages)
        weakref.finalize(block, _give_back, free, pages, self._most_free).atexit = False
        return ctypes.addressof(block), block

    def tensor(self, block, index, samples):
        """The samples in a block, not copied; the tensor's storage keeps the block."""
        field = self._fields[index]
        shape = (samples,) + field.shape
        if samples * field.numbers == 0:
            return self._torch.empty(shape, dtype=field.dtype)
        return self._torch.frombuffer(block, dtype=field.dtype, count=samples * field.numbers).view(shape)


class Pinned:
    """Memory of torch's own allocator, which knows the copies to a GPU that still read it."""

    def __init__(self, torch, fields, batch):
        self._torch, self._fields, self._batch = torch, fields, batch

    def take(self, index):
        field = self._fields[index]
        block = self._torch.empty((self._batch,) + field.shape, dtype=field.dtype, pin_memory=True)
        return block.data_ptr(), block

    def tensor(self, block, index, samples):
        return block if samples == self._batch else block[:samples]


def _give_back(free, pages, most_free):
    if len(free) < most_free:
        free.append(pages)
