"""The sample cache: a deterministic data set is packed once, and batches are gathered from the packed samples in the sampler's own order.

It is sure before it serves: fetching leaves the random state unchanged, two fetches agree, batches are made sample by sample; and samples are audited again and
again. When anything turns out otherwise it falls away, and the loader goes on as before.
"""

import copy
import itertools
import os
import random
import sys
import time

from ..weak import Known
from . import ahead
from .ahead import Ahead
from .loaders import draw_seed, why_no_workers
from .promised import Order, Placement

NAME = "sample-cache"
PROBES = 8  # samples that are fetched twice
PACK_BATCH = 256
SHARE_OF_FREE = 0.5  # of the memory that is free when packing begins
TRIAL_EXTRA = 20  # batches packed beyond the steps of a trial
MOST_AT_ONCE = 4_000_000  # samples of an epoch whose order is looked up as a whole
FIRST_AUDIT, RAREST_AUDIT = 16, 1024  # batches between two audits; the distance doubles


class Refused(Exception):
    """Why a loader's samples are not cached."""


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
        if packed is False or packed.is_broken:
            return None
        if self._iterator_class is None:
            self._iterator_class = make_iterator_class(self._tools.torch)
        return self._iterator_class(loader, packed, not ahead.why_not(self._tools.torch, loader), self._may_go_ahead(loader))

    def _may_go_ahead(self, loader):
        return self._goes_ahead and not ahead.why_not(self._tools.torch, loader)

    def _try_to_pack(self, loader):
        report = self._tools.report
        try:
            start = time.monotonic()
            packed = pack(self._tools, loader, self._most_bytes, self._workers)
            packed.place(self._most_on_gpu, self._may_go_ahead(loader))
        except Exception as error:
            if report.state(NAME) != "in-force":
                report.refused(NAME, str(error) if isinstance(error, Refused) else "fetching raised %s: %s" % (type(error).__name__, error))
            return False
        seconds = time.monotonic() - start
        whole = seconds * len(loader.dataset) / packed.count
        packed.tell("%d samples, %.0f MB, packed in %.1f s" % (packed.count, packed.bytes / 1e6, seconds), once_s=whole)
        return packed


class Packed:
    """The samples of a data set, each part of a sample in one tensor. `rows` tells where each sample is, -1 where it is not, or is None for all in order."""

    def __init__(self, tools, twin, leaves, form, rows):
        self._tools = tools
        self._twin = twin
        self._leaves = leaves
        self._form = form
        self._rows = rows
        self.count = len(leaves[0])
        self.bytes = sum(leaf.nelement() * leaf.element_size() for leaf in leaves)
        self.is_broken = False
        self.placement = None
        self._told = ("", 0.0)
        self._until_audit = self._distance = FIRST_AUDIT

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

    def audit(self, indices, must=False):
        """Now and then a sample is fetched anew and compared."""
        self._until_audit -= 1
        if self._until_audit > 0 and not must:
            return
        self._distance = min(2 * self._distance, RAREST_AUDIT)
        self._until_audit = self._distance
        why = self._why_broken(int(indices[len(indices) // 2]))
        if why:
            self.is_broken = True
            self._tools.agent.attempt(self._tools.report.undone, NAME, why)

    def _why_broken(self, index):
        torch = self._tools.torch
        row = index if self._rows is None else int(self._rows[index])
        if row < 0:
            return ""
        try:
            now, _ = leaves_of(torch, fetch(torch, self._twin, [index]))
        except Exception as error:
            return "fetching sample %d again raised %s" % (index, type(error).__name__)
        then = [leaf[row:row + 1] for leaf in self._leaves]
        return "" if is_same(torch, now, then) else "sample %d is not what it was: the data set changes" % index


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
                packed.audit(indices, must=self._is_first)
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
    size = len(order) * sum(leaf.nelement() * leaf.element_size() for leaf in first)
    room = min(most_bytes, int(SHARE_OF_FREE * free_memory()))
    if size > room:
        raise Refused("its %d samples take %.1f GB, and there is room for %.1f" % (count, size / 1e9, room / 1e9))
    leaves = [torch.empty((len(order),) + leaf.shape[1:], dtype=leaf.dtype) for leaf in first]
    done = 0
    for batch in batches_in_order(torch, loader, order, workers):
        parts, its_form = leaves_of(torch, batch)
        length = min(PACK_BATCH, len(order) - done)
        if its_form != form or any(part.shape != (length,) + leaf.shape[1:] or part.dtype != leaf.dtype for part, leaf in zip(parts, leaves)):
            raise Refused("its samples differ in form")
        for part, leaf in zip(parts, leaves):
            leaf[done:done + length] = part
        done += length
    return Packed(tools, twin, leaves, form, rows_of(torch, order, count))


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


def twin_of(torch, loader):
    """The same loader with a data set of its own: what that opens when it fetches here must not be shared by worker processes that come later."""
    twin = copy.copy(loader)
    vars(twin)["dataset"] = own_copy(torch, loader.dataset)
    return twin


def own_copy(torch, data, depth=3):
    """A copy that shares what is stored, but not the objects around it."""
    twin = copy.copy(data)
    for name, value in list(vars(twin).items()) if depth > 0 and hasattr(twin, "__dict__") else ():
        if isinstance(value, (list, tuple)) and value and all(is_data_set(torch, item) for item in value):
            vars(twin)[name] = type(value)(own_copy(torch, item, depth - 1) for item in value)
        elif is_data_set(torch, value):
            vars(twin)[name] = own_copy(torch, value, depth - 1)
    return twin


def is_data_set(torch, value):
    return isinstance(value, torch.utils.data.Dataset)


def check(torch, loader):
    """The number of samples of a loader that can be cached; raises Refused."""
    data = loader.dataset
    if isinstance(data, torch.utils.data.IterableDataset):
        raise Refused("an iterable data set has no samples by number")
    if loader.batch_sampler is None:
        raise Refused("the loader does not make batches")
    if hasattr(data, "set_epoch"):
        raise Refused("its data set changes with the epoch")
    try:
        count = len(data)
    except TypeError:
        raise Refused("its data set has no length") from None
    if count < 2:
        raise Refused("its data set is empty")
    probes = sorted({count * i // PROBES for i in range(PROBES)})
    check_probes(torch, loader, probes)
    return count


def check_probes(torch, loader, probes):
    """Fetching is the same twice, draws no random numbers, and a batch is its samples one below the other."""
    before = random_state(torch)
    singles = [leaves_of(torch, fetch(torch, loader, [index])) for index in probes]
    if random_state(torch) != before:
        raise Refused("its samples are drawn at random")
    together, form = leaves_of(torch, fetch(torch, loader, probes))
    if random_state(torch) != before:
        raise Refused("its samples are drawn at random")
    if any(single_form != form or any(row.shape[:1] != (1,) or row.shape[1:] != all_rows.shape[1:] for row, all_rows in zip(rows, together))
           for rows, single_form in singles):
        raise Refused("its samples differ in form, or are more than one row of a batch")
    if not is_same(torch, together, [torch.cat(parts) for parts in zip(*(rows for rows, _ in singles))]):
        raise Refused("two fetches of the same samples differ")


def random_state(torch):
    """The state of every generator that a data set would use without being asked."""
    numpy = sys.modules.get("numpy")
    drawn = numpy.random.get_state() if numpy is not None else None
    return (bytes(torch.get_rng_state().numpy()), random.getstate(), (drawn[1].tobytes(), drawn[2]) if drawn is not None else None)


def fetch(torch, loader, indices):
    """A batch of these samples by the loader's own means, in this process."""
    kind = sys.modules["torch.utils.data.dataloader"]._DatasetKind
    return kind.create_fetcher(loader._dataset_kind, loader.dataset, loader._auto_collation, loader.collate_fn, loader.drop_last).fetch(indices)


def batches_in_order(torch, loader, order, workers):
    """These samples, one after the other, by a copy of the loader that draws from a random state of its own."""
    own = copy.copy(loader)
    order = torch.utils.data.BatchSampler(order, PACK_BATCH, False)
    workers = 0 if why_no_workers(torch, loader) else max(workers, loader.num_workers)
    vars(own).update(batch_sampler=order, num_workers=workers, prefetch_factor=2 if workers else None, persistent_workers=False,
                     pin_memory=False, generator=torch.Generator(), _iterator=None)  # fmt: skip
    iterator = own._get_iterator()
    while True:
        try:
            yield iterator._next_data()
        except StopIteration:
            return


def leaves_of(torch, batch):
    """The tensors of a batch, and how they are put together."""
    leaves, form = torch.utils._pytree.tree_flatten(batch)
    if not leaves or not all(isinstance(leaf, torch.Tensor) and leaf.dim() > 0 and leaf.device.type == "cpu" for leaf in leaves):
        raise Refused("its batches hold something else than tensors on the CPU")
    return leaves, form


def is_same(torch, some, others):
    """Equal to the bit; a NaN equals itself."""
    return len(some) == len(others) and all(
        one.dtype == other.dtype and one.shape == other.shape and torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8))
        for one, other in zip(some, others)
    )


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
