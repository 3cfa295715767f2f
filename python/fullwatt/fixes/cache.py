"""The sample cache: a deterministic data set is packed once, and batches are gathered from the packed samples in the sampler's own order.

It is sure before it serves: fetching leaves the random state unchanged, two fetches agree, batches are made sample by sample; and samples are audited again and
again. When anything turns out otherwise it falls away, and the loader goes on as before.
"""

import copy
import itertools
import os
import sys
import time

from ..weak import Known
from . import ahead
from .ahead import Ahead
from .audit import Audits, check
from .loaders import draw_seed, why_no_workers
from .promised import Order, Placement
from .samples import RandomState, Refused, fetch, leaves_of, twin_of

NAME = "sample-cache"
PACK_BATCH, PACK_BYTES = 256, 64 << 20  # the most of what is packed at once
PACKS_PER_WORKER = 4  # at least, so that all are done at about the same time
SHARE_OF_FREE = 0.5  # of the memory that is free when packing begins
TRIAL_EXTRA = 20  # batches packed beyond the steps of a trial
MOST_AT_ONCE = 4_000_000  # samples of an epoch whose order is looked up as a whole


def sample_cache(tools, entry):
    """Every loader that is read for training and qualifies gets its samples from memory."""
    caches, torch = Caches(tools, entry), tools.torch

    def make(original):
        def __iter__(self):
            iterator = tools.agent.attempt(caches.iterator, self) if torch.is_grad_enabled() else None
            return original(self) if iterator is None else iterator

        return __iter__

    tools.patches.replace(torch.utils.data.DataLoader, "__iter__", make)
    tools.report.waiting(NAME, "until a loader is read")


class Caches:
    """The packed samples of each loader."""

    def __init__(self, tools, entry):
        self._tools = tools
        self._most_bytes = int(entry["gigabytes"]) << 30
        self._most_on_gpu = int(entry.get("gpu_gigabytes", 0)) << 30
        self._workers = int(entry.get("workers", 0))
        self._goes_ahead = bool(entry.get("ahead", False))
        self._packed = Known()
        self._iterator_class = None

    def iterator(self, loader):
        """An iterator over packed samples, or None where the loader's own has to do."""
        packed = self._packed.get(loader)
        if packed is None:
            packed = self._try_to_pack(loader)
            self._packed.put(loader, packed)
        if packed is False:
            return None
        packed.begin_epoch(loader)
        if packed.is_broken:
            self._packed.put(loader, False)  # its memory is free again
            return None
        if self._iterator_class is None:
            self._iterator_class = make_iterator_class(self._tools.torch)
        return self._iterator_class(loader, packed, not ahead.why_not(self._tools.torch, loader), self._may_go_ahead(loader))

    def _may_go_ahead(self, loader):
        return self._goes_ahead and not ahead.why_not(self._tools.torch, loader)

    def _try_to_pack(self, loader):
        report = self._tools.report
        start, before = time.monotonic(), RandomState(self._tools.torch)
        try:
            packed = pack(self._tools, loader, self._most_bytes, self._workers)
            packed.place(self._most_on_gpu, self._may_go_ahead(loader))
        except Exception as error:
            if report.state(NAME) != "in-force":
                report.refused(NAME, str(error) if isinstance(error, Refused) else "fetching raised %s: %s" % (type(error).__name__, error))
            return False
        finally:
            before.put_back()
        seconds = time.monotonic() - start
        whole = seconds * len(loader.dataset) / packed.count
        packed.tell("%d samples, %.0f MB, packed in %.1f s" % (packed.count, packed.bytes / 1e6, seconds), once_s=whole)
        return packed


class Packed:
    """The samples of a data set, each part of a sample in one tensor. `rows` tells where each sample is, -1 where it is not, or is None for all in order."""

    def __init__(self, tools, leaves, form, rows, audits):
        self._tools = tools
        self._leaves = leaves
        self._form = form
        self._rows = rows
        self._audits = audits
        self.count = len(leaves[0])
        self.bytes = sum(leaf.nelement() * leaf.element_size() for leaf in leaves)
        self.is_broken = False
        self.placement = None
        self._told = ("", 0.0)

    def place(self, most_bytes, goes_ahead):
        """Samples may go to the GPU, as many bytes of them; others ahead of their steps."""
        self.placement = Placement(self._tools.torch, self._leaves, most_bytes, goes_ahead)

    def tell(self, text, once_s):
        """It serves."""
        self._told = (text, once_s)
        self._tools.report.in_force(NAME, text, once_s=once_s)

    def order(self, indices):
        """Where these samples lie, one after the other."""
        places = self._tools.torch.as_tensor(indices)
        return Order(places if self._rows is None else self._rows[places])

    def batch(self, places):
        """What the loader's own fetching and collating would give, or None where samples are missing."""
        if self._rows is not None and int(places.host.min()) < 0:
            return None
        return self._tools.torch.utils._pytree.tree_unflatten(self.placement.gather(places), self._form)

    def served(self):
        """The program is done with a batch: it has shown what it does with its parts."""
        if self.placement.is_learning:
            start = time.monotonic()
            done = self.placement.learned()
            if done:
                self.tell("%s; %s" % (self._told[0], done), self._told[1] + time.monotonic() - start)

    def begin_epoch(self, loader):
        """It stays in force only if the data set is still what was packed, as far as can be seen."""
        self._audit(self._audits.begin, loader)

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
            self._make = maker(torch, batches_of(self._sampler_iter, packed, is_known and len(loader.sampler) <= MOST_AT_ONCE), packed, self._pin_memory)

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


def batches_of(sampler, packed, at_once):
    """The numbers of each batch's samples and where these lie. An order that is known from its first step on is looked up as a whole."""
    if not at_once:
        for indices in sampler:
            yield indices, packed.order(indices).part(0, len(indices))
        return
    batches = list(sampler)
    order, begin = packed.order([index for indices in batches for index in indices]), 0
    for indices in batches:
        yield indices, order.part(begin, begin + len(indices))
        begin += len(indices)


def maker(torch, batches, packed, pins):
    """A function that gives the next samples' numbers and their batch, or None where it cannot; it knows nothing of the iterator."""

    def make():
        indices, places = next(batches)
        data = packed.batch(places) if not packed.is_broken else None
        return indices, torch.utils.data._utils.pin_memory.pin_memory(data) if pins and data is not None else data

    return make


def pack(tools, loader, most_bytes, workers):
    """Fetches every sample once, beside each other in as many processes as the plan says."""
    torch = tools.torch
    twin = twin_of(torch, loader)
    count = check(torch, twin)
    first, form = leaves_of(torch, fetch(torch, twin, [0]))
    order = upcoming(torch, loader, count)
    sample_bytes = sum(leaf.nelement() * leaf.element_size() for leaf in first)
    size = len(order) * sample_bytes
    room = min(most_bytes, int(SHARE_OF_FREE * free_memory()))
    if size > room:
        raise Refused("its %d samples take %.1f GB, and there is room for %.1f" % (count, size / 1e9, room / 1e9))
    leaves = [torch.empty((len(order),) + leaf.shape[1:], dtype=leaf.dtype) for leaf in first]
    workers = 0 if why_no_workers(torch, loader) else max(workers, loader.num_workers)
    at_once = pack_batch(len(order), sample_bytes, workers)
    done = 0
    for batch in batches_in_order(torch, loader, order, at_once, workers):
        parts, its_form = leaves_of(torch, batch)
        length = min(at_once, len(order) - done)
        if its_form != form or any(part.shape != (length,) + leaf.shape[1:] or part.dtype != leaf.dtype for part, leaf in zip(parts, leaves)):
            raise Refused("its samples differ in form")
        for part, leaf in zip(parts, leaves):
            leaf[done:done + length] = part
        done += length
    rows = rows_of(torch, order, count)
    return Packed(tools, leaves, form, rows, Audits(torch, count, order, finder(leaves, rows)))


def pack_batch(count, sample_bytes, workers):
    """How many samples are fetched at once: large ones few, and enough batches for all workers."""
    return max(1, min(PACK_BATCH, PACK_BYTES // max(sample_bytes, 1), count // (PACKS_PER_WORKER * max(workers, 1))))


def upcoming(torch, loader, count):
    """The samples to pack: all, but in a trial that ends within an epoch only those that its steps will use, by the sampler's own order, drawn ahead and put back."""
    steps = os.environ.get("FULLWATT_STEPS", "") if os.environ.get("FULLWATT_TRIAL") else ""
    known = (torch.utils.data.SequentialSampler, torch.utils.data.RandomSampler, torch.utils.data.SubsetRandomSampler,
             torch.utils.data.WeightedRandomSampler, torch.utils.data.DistributedSampler)  # fmt: skip
    if not steps.isdigit() or type(loader.sampler) not in known or type(loader.batch_sampler) is not torch.utils.data.BatchSampler:
        return range(count)
    generators = [torch.default_generator] + [owner.generator for owner in (loader, loader.sampler) if getattr(owner, "generator", None) is not None]
    states = [generator.get_state() for generator in generators]
    try:
        draw_seed(torch, loader)
        wanted = int(steps) + TRIAL_EXTRA
        batches = list(itertools.islice(iter(loader.batch_sampler), wanted))
    finally:
        for generator, state in zip(generators, states):
            generator.set_state(state)
    return sorted({int(index) for batch in batches for index in batch}) if len(batches) == wanted else range(count)


def rows_of(torch, order, count):
    """Where each sample lies, or None when all lie in order."""
    if len(order) == count:
        return None
    rows = torch.full((count,), -1, dtype=torch.int64)
    rows[torch.as_tensor(order)] = torch.arange(len(order))
    return rows


def finder(leaves, rows):
    """A function that gives the parts of one sample, or None where it is not packed."""

    def find(index):
        row = index if rows is None else int(rows[index])
        return [leaf[row:row + 1] for leaf in leaves] if row >= 0 else None

    return find


def batches_in_order(torch, loader, order, at_once, workers):
    """These samples, one after the other, by a copy of the loader that draws from a random state of its own."""
    own = copy.copy(loader)
    order = torch.utils.data.BatchSampler(order, at_once, False)
    vars(own).update(batch_sampler=order, num_workers=workers, prefetch_factor=2 if workers else None, persistent_workers=False,
                     pin_memory=False, generator=torch.Generator(), _iterator=None)  # fmt: skip
    iterator = own._get_iterator()
    while True:
        try:
            yield iterator._next_data()
        except StopIteration:
            return


def free_memory():
    """Bytes of memory that can be had: of the machine's, and of what its group may use."""
    available = 0
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                available = int(line.split()[1]) << 10
    limit, used = group_figure("memory.max"), group_figure("memory.current")
    return min(available, limit - used) if limit is not None and used is not None else available


def group_figure(name):
    """A figure of this process's control group (version 2), or None."""
    try:
        with open("/sys/fs/cgroup/" + name, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None
