"""Packed samples, and the iterator that serves them in a loader's place."""

import array
import itertools
import sys
import time

from .ahead import Ahead
from .promised import Order, Placement
from .samples import fetch, uncollated

NAME = "sample-cache"
MORE_AT_ONCE = 8  # times as many batches are looked up as the time before
MOST_AT_ONCE = 1_000_000  # samples


class Packed:
    """The samples of a data set of `length`, each part of a sample in one tensor. `rows` tells where each sample is, -1 where it is not, or is None for all in order.
    Those that are not collated are put together by the loader's own function."""

    def __init__(self, tools, leaves, length, form, rows, audits, is_uncollated=False):
        self._tools = tools
        self._leaves = leaves
        self._length = length
        self._form = form
        self._rows = rows
        self._audits = audits
        self.is_uncollated = is_uncollated
        self.count = len(leaves[0])
        self.bytes = sum(leaf.nbytes for leaf in leaves)
        self.is_on_gpu = any(leaf.is_cuda for leaf in leaves)  # where the data set puts its samples
        self.is_broken = False
        self.placement = None
        self._told = ("", 0.0)

    @property
    def has_all(self):
        """Whether all samples are packed."""
        return self._rows is None

    @property
    def epochs(self):
        """That have begun."""
        return self._audits.epochs

    def place(self, most_bytes, goes_ahead):
        """Samples may go to the GPU, as many bytes of them; others ahead of their steps."""
        if self.is_uncollated:
            most_bytes, goes_ahead = 0, False
        self.placement = Placement(self._tools.torch, self._leaves, self._length, most_bytes, goes_ahead)

    def tell(self, text, once_s):
        """It serves."""
        self._told = (text, once_s)
        self._tools.report.in_force(NAME, text, once_s=once_s)

    def order(self, indices):
        """Where these samples lie, one after the other; None where some are no numbers of samples."""
        torch = self._tools.torch
        try:
            places = torch.frombuffer(array.array("q", indices), dtype=torch.int64)
        except (TypeError, ValueError, OverflowError):
            return None
        if int(places.min()) < 0 or int(places.max()) >= self._length:
            return None
        return Order(places if self._rows is None else self._rows[places])

    def batch(self, places):
        """What the loader's own fetching and collating would give, or the samples that it has still to collate; None where some are missing."""
        if places is None:
            return None
        if self._rows is not None and int(places.host.min()) < 0:
            return None
        return self._form.put_together(self.placement.gather(places))

    def served(self):
        """The program is done with a batch: it has shown what it does with its parts."""
        if self.placement.is_learning:
            start = time.monotonic()
            done = self.placement.learned()
            if done:
                self.tell("%s; %s" % (self._told[0], done), self._told[1] + time.monotonic() - start)

    def begin_epoch(self, loader):
        """It stays in force only if the data set is still what was packed, as far as can be seen."""
        self._audit(self._audits.begin, uncollated(loader) if self.is_uncollated else loader)

    def audit(self, indices):
        """Now and then a sample of a batch is fetched anew and compared."""
        self._audit(self._audits.batch, indices)

    def _audit(self, audit, given):
        if self.is_broken:
            return
        try:
            why = audit(given)
        except Exception as error:
            why = "looking at its data set again raised %s" % type(error).__name__
        if why:
            self.is_broken = True
            self._tools.agent.attempt(self._tools.report.undone, NAME, why)


def make_iterator_class(torch):
    """An iterator of torch's own kind: its constructor draws from the random state what every iterator draws, and the agent's hooks see its batches."""
    module = sys.modules["torch.utils.data.dataloader"]

    class CachedIterator(module._BaseDataLoaderIter):
        def __init__(self, loader, packed, is_known, may_go_ahead):
            super().__init__(loader)
            self._loader = loader
            self._packed = packed
            self._may_go_ahead = may_go_ahead
            self._ahead = None
            self._is_first = True
            self.batches = Batches(self._sampler_iter, packed, is_known)
            self._make = maker(torch, self.batches, packed, loader.collate_fn if packed.is_uncollated else None, self._pin_memory)

        def _next_data(self):
            packed = self._packed
            if not self._is_first:
                packed.served()
            indices, data = self._ahead.next() if self._ahead is not None else self._make()
            if not packed.is_broken:
                packed.audit(indices)
                if self._ahead is None and self._may_go_ahead and not packed.placement.is_learning and not packed.placement.is_whole:
                    self._ahead = Ahead(self._make)
                self._is_first = False
            if data is None or packed.is_broken:
                data = fetch(torch, self._loader, indices)
                return torch.utils.data._utils.pin_memory.pin_memory(data) if self._pin_memory else data
            return data

        def __del__(self):
            if self._ahead is not None:
                self._ahead.close()

    return CachedIterator


class Batches:
    """The numbers of each batch's samples and where these lie."""

    def __init__(self, sampler, packed, is_known):
        self._packed = packed
        self._ahead = LookedUp()
        self._sampler_iter = looked_up(sampler, packed, self._ahead) if is_known else sampler  # may be grouped anew: the samples and their order stay
        self._given = 0

    def __next__(self):
        indices = next(self._sampler_iter)
        begin, self._given = self._given, self._given + len(indices)
        places = self._ahead.part(begin, self._given)
        if places is None:
            order = self._packed.order(indices)
            places = order.part(0, len(indices)) if order is not None else None
        return indices, places


class LookedUp:
    """Where the samples lie that an epoch has between two of its places."""

    def __init__(self):
        self._order, self._begin, self._end = None, 0, 0

    def follow(self, order, count):
        """The next ones."""
        self._order, self._begin, self._end = order, self._end, self._end + count

    def part(self, begin, end):
        """None where they are others."""
        is_here = self._order is not None and self._begin <= begin and end <= self._end
        return self._order.part(begin - self._begin, end - self._begin) if is_here else None


def looked_up(batches, packed, ahead):
    """The batches of an order that is known from its first step on. Many of them are looked up at once, but not by a program that reads only the first ones."""
    count = 1
    while True:
        coming = list(itertools.islice(batches, count))
        if not coming:
            return
        indices = [index for batch in coming for index in batch]
        ahead.follow(packed.order(indices), len(indices))
        yield from coming
        count = min(MORE_AT_ONCE * count, max(1, MOST_AT_ONCE // len(coming[0])))


def maker(torch, batches, packed, collate, pins):
    """A function that gives the next samples' numbers and their batch, or None where it cannot; it knows nothing of the iterator."""

    def make():
        indices, places = next(batches)
        data = packed.batch(places) if not packed.is_broken else None
        if collate is not None and data is not None:
            data = collate(data)
        return indices, torch.utils.data._utils.pin_memory.pin_memory(data) if pins and data is not None else data

    return make
