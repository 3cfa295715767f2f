"""The batches that the ceiling test gives in place of the loader's."""

import copy
from collections.abc import Mapping, MutableSequence

MOST, MOST_BYTES, LONGEST_NS = 8, 256 << 20, 1_000_000_000


class CachedBatches:
    """The first ones of the test, in turns: one alone may be longer or shorter than the others."""

    def __init__(self, torch):
        self._torch = torch
        self._kept = []
        self._bytes = 0
        self._began_ns = 0
        self._is_complete = False
        self._turn = 0

    def next(self, fetch, at_ns):
        """`fetch` gives the loader's own."""
        if self._wants_more(at_ns):
            try:
                return self._add(fetch()).again()
            except StopIteration:
                if not self._kept:
                    raise
                self._is_complete = True
        kept = self._kept[self._turn % len(self._kept)]
        self._turn += 1
        return kept.again()

    def _wants_more(self, at_ns):
        if not self._kept:
            self._began_ns = at_ns
        is_enough = len(self._kept) >= MOST or self._bytes >= MOST_BYTES or at_ns - self._began_ns >= LONGEST_NS
        return not self._is_complete and not is_enough

    def _add(self, batch):
        """Never raises: a batch that cannot be copied is given as it is."""
        try:
            kept = CachedBatch(batch, self._torch)
            self._bytes += kept.bytes
        except Exception:
            kept = GivenAsItIs(batch)
        self._kept.append(kept)
        return kept


class GivenAsItIs:
    def __init__(self, batch):
        self._batch = batch

    def again(self):
        return self._batch


class CachedBatch:
    """Its containers are new each time: programs take things out of them. For those that write into tensors, too, copies are given."""

    def __init__(self, batch, torch):
        self._torch = torch
        self._batch = batch
        self._unwritten = self._copied(batch)
        self._versions = self._versions_now()
        self._is_written = False
        self.bytes = sum(tensor.nbytes for tensor in self._tensors(batch))
        self.again()

    def again(self):
        self._is_written = self._is_written or self._versions_now() != self._versions
        return self._copied(self._unwritten) if self._is_written else new_containers(self._batch)

    def _versions_now(self):
        return [tensor._version for tensor in self._tensors(self._batch) if not tensor.is_inference()]

    def _tensors(self, batch):
        if isinstance(batch, self._torch.Tensor):
            yield batch
        elif isinstance(batch, (Mapping, list, tuple)):
            for item in batch.values() if isinstance(batch, Mapping) else batch:
                yield from self._tensors(item)

    def _copied(self, batch):
        if isinstance(batch, self._torch.Tensor):
            return batch.clone()
        if isinstance(batch, Mapping):
            return with_items(batch, {key: self._copied(batch[key]) for key in batch})
        if isinstance(batch, tuple):
            items = [self._copied(item) for item in batch]
            return type(batch)(*items) if hasattr(batch, "_fields") else type(batch)(items)
        return [self._copied(item) for item in batch] if isinstance(batch, list) else batch


def new_containers(batch):
    """The same tensors in new lists and dictionaries."""
    if isinstance(batch, Mapping):
        inner = [key for key in batch if isinstance(batch[key], (Mapping, MutableSequence))]
        return with_items(batch, {key: new_containers(batch[key]) for key in inner})
    return [new_containers(item) for item in batch] if isinstance(batch, list) else batch


def with_items(mapping, items):
    """A new one of its kind, in which these items are others."""
    fresh = copy.copy(mapping)
    for key in items if hasattr(fresh, "__setitem__") else ():
        fresh[key] = items[key]
    return fresh
