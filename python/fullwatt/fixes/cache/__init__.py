"""The sample cache: a deterministic data set is packed once, and batches are gathered from the packed samples in the sampler's own order.

It is sure before it serves: fetching leaves the random state unchanged, two fetches agree, batches are made sample by sample; and samples are audited again and
again. When anything turns out otherwise it falls away, and the loader goes on as before.
"""

import time

from ...weak import Known, can_be_weak
from ..random_state import RandomState
from . import ahead
from .fingerprint import is_same_function, leads_to, reachable
from .packed import NAME, make_iterator_class
from .packing import pack
from .samples import Refused


def sample_cache(tools, entry):
    """Every loader that is read for training and qualifies gets its samples from memory."""
    caches, torch = Caches(tools, entry), tools.torch

    def make(original):
        def __iter__(self):
            iterator = tools.agent.attempt(caches.iterator, self) if torch.is_grad_enabled() and not tools.is_refused else None
            return original(self) if iterator is None else iterator

        return __iter__

    tools.patches.replace(torch.utils.data.DataLoader, "__iter__", make)
    tools.report.waiting(NAME, "until a loader is read")


MOST_SHORT_LIVED = 2  # data sets in a row, each of which is gone after one epoch


class Caches:
    """The packed samples of each data set: a loader that is made anew for every epoch finds them again. They are a loader's own where it reads its data set in another way
    than the one before, where a trial needs but some, and where they would hold the data set themselves."""

    def __init__(self, tools, entry):
        self._tools = tools
        self._most_bytes = int(entry["gigabytes"]) << 30
        self._most_on_gpu = int(entry.get("gpu_gigabytes", 0)) << 30
        self._workers = int(entry.get("workers", 0))
        self._goes_ahead = bool(entry.get("ahead", False))
        self._packed = Known(self._is_gone)  # by data set or loader: as which it was packed, and the samples, or False
        self._short_lived = 0
        self._iterator_class = None

    def iterator(self, loader):
        """An iterator over packed samples, or None where the loader's own has to do."""
        owner, packed = self._found(loader)
        if packed is None:
            packed = self._try_to_pack(loader)
            owner = self._owner(loader, packed)
            self._packed.put(owner, (way_of(loader), packed))
        if packed is False:
            return None
        packed.begin_epoch(loader)
        if packed.is_broken:
            self._packed.put(owner, (way_of(loader), False))  # its memory is free again
            return None
        if self._iterator_class is None:
            self._iterator_class = make_iterator_class(self._tools.torch)
        return self._iterator_class(loader, packed, not ahead.why_not(self._tools.torch, loader), self._may_go_ahead(loader, packed))

    def _found(self, loader):
        """Who has what is packed for it, and that; None where nothing is."""
        for owner in (loader.dataset, loader):
            known = self._packed.get(owner)
            if known is not None and serves(self._tools.torch, *known, loader):
                return owner, known[1]
        return None, None

    def _owner(self, loader, packed):
        """With whom its packed samples live and die."""
        data = loader.dataset
        is_for_all = self._packed.get(data) is None and (packed is False or packed.has_all)
        return data if is_for_all and can_be_weak(data) and not leads_to(self._tools.torch, data, loader.collate_fn) else loader

    def _is_gone(self, known):
        _, packed = known
        if packed is not False:
            self._short_lived = self._short_lived + 1 if packed.epochs < 2 else 0

    def _may_go_ahead(self, loader, packed):
        return self._goes_ahead and not packed.is_on_gpu and not packed.is_uncollated and not ahead.why_not(self._tools.torch, loader)

    def _try_to_pack(self, loader):
        report, torch = self._tools.report, self._tools.torch
        if self._short_lived >= MOST_SHORT_LIVED:
            report.undone(NAME, "the data set, or its collate function, is made anew for every epoch: packing it takes what it saves")
            return False
        start, before = time.monotonic(), RandomState(torch, reachable(torch, loader.dataset, loader.collate_fn))
        try:
            packed = pack(self._tools, loader, self._most_bytes, self._workers)
            packed.place(self._most_on_gpu, self._may_go_ahead(loader, packed))
        except Exception as error:
            if report.state(NAME) != "in-force":
                report.refused(NAME, str(error) if isinstance(error, Refused) else "fetching raised %s: %s" % (type(error).__name__, error))
            return False
        finally:
            before.put_back()
        seconds = time.monotonic() - start
        whole = seconds * len(loader.dataset) / packed.count
        collating = ", put together by the loader's own function" if packed.is_uncollated else ""
        packed.tell("%d samples, %.0f MB, packed in %.1f s%s" % (packed.count, packed.bytes / 1e6, seconds, collating), once_s=whole)
        return packed


def way_of(loader):
    """How it reads its data set."""
    return loader._auto_collation, loader.collate_fn


def serves(torch, way, packed, loader):
    """Whether what was packed for one that reads in this way is what this loader reads, too. Samples that are not collated are that for any function."""
    makes_batches, collate = way_of(loader)
    is_any = packed is not False and packed.is_uncollated and loader.num_workers == 0
    return makes_batches == way[0] and (is_any or is_same_function(torch, way[1], collate))
