"""Fetches the samples of a loader once, by its own means."""

import collections
import copy
import itertools
import math
import mmap
import os
from concurrent.futures import ThreadPoolExecutor

from ..loaders import draw_seed, why_no_workers
from .audit import REST, Audits, count_of, readable
from .column import Column
from .packed import Packed
from .samples import Refused
from .values import host_leaves_of, size_of

PACK_BATCH, PACK_BYTES = 256, 64 << 20  # the most of what is packed at once
PACKS_PER_WORKER = 4  # at least, so that all are done at about the same time
PREFETCHED = 2  # batches of each worker
MOST_SENT = 256  # tensors of their own that are on their way from workers: each is an open file
COPIERS = 4
LARGE = 64 << 20
SHARE_OF_FREE = 0.5  # of the memory that is free when packing begins
TRIAL_EXTRA = 20  # batches packed beyond the steps of a trial


def pack(tools, loader, most_bytes, workers):
    """Fetches every sample once, beside each other in as many processes as the plan says."""
    torch = tools.torch
    count = count_of(torch, loader)
    reader, form, probes = readable(torch, loader, count)
    order = upcoming(torch, loader, count)
    sample_bytes, room = need_room(torch, probes, count, most_bytes)
    leaves = [room_for(torch, len(order), part) if isinstance(part, torch.Tensor) else Column(torch, len(order), room) for part in probes]
    is_on_gpu = any(leaf.is_cuda for leaf in leaves)
    workers = 0 if is_on_gpu or why_no_workers(torch, loader) else max(workers, loader.num_workers)
    at_once = pack_batch(len(order), sample_bytes, workers, tensors_in_columns(torch, probes))
    with Copying(leaves) as copying:
        for batch in batches_in_order(torch, reader, order, at_once, workers):
            length = min(at_once, len(order) - copying.begun)
            copying.add(form.parts(batch, length), length)
    if is_on_gpu:
        torch.cuda.synchronize()  # threads have copied, each on a stream of its own
    rows = rows_of(torch, order, count)
    audits = Audits(torch, form, count, order, finder(leaves, rows), math.inf if is_trial() else REST)
    return Packed(tools, leaves, count, form, rows, audits, reader is not loader)


def need_room(torch, probes, count, most_bytes):
    """The bytes of a sample, by the parts of some, and how many there is room for in memory. All must fit where they lie, also in a trial that packs less."""
    here, there = 0, 0
    for part in probes:
        if not isinstance(part, torch.Tensor):
            here += sum(size_of(leaf) for value in part for leaf in host_leaves_of(torch, value)) / len(part)
        elif part.is_cuda:
            there += part.nbytes / len(part)
        else:
            here += part.nbytes / len(part)
    room = min(most_bytes, int(SHARE_OF_FREE * free_memory()))
    rooms = [(here, room, "")] + ([(there, int(SHARE_OF_FREE * torch.cuda.mem_get_info()[0]), " on the GPU")] if there else [])
    for sample_bytes, limit, where in rooms:
        if count * sample_bytes > limit:
            raise Refused("its %d samples take %.1f GB%s, and there is room for %.1f" % (count, count * sample_bytes / 1e9, where, limit / 1e9))
    return int(here + there), room


def room_for(torch, count, part):
    """Memory for so many rows like these, where they lie; in large pages where it is much, which is filled twice as fast."""
    shape = (count,) + part.shape[1:]
    size = count * part.nbytes // len(part)
    if part.is_cuda:
        return torch.empty(shape, dtype=part.dtype, device=part.device)
    if size < LARGE:
        return torch.empty(shape, dtype=part.dtype)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    try:
        memory.madvise(mmap.MADV_HUGEPAGE)
    except (AttributeError, OSError):
        pass  # small ones do as well
    return torch.frombuffer(memory, dtype=part.dtype).view(shape)


class Copying:
    """Copies batches to where they belong, some beside each other: one after the other would keep many workers waiting."""

    def __init__(self, leaves):
        self._leaves = leaves
        self._copiers = ThreadPoolExecutor(COPIERS, "fullwatt-packing")
        self._copies = collections.deque()
        self.begun = 0  # rows

    def __enter__(self):
        return self

    def add(self, parts, length):
        """The next rows."""
        self._copies.append(self._copiers.submit(self._copy, parts, self.begun, self.begun + length))
        self.begun += length
        if len(self._copies) > COPIERS:
            self._copies.popleft().result()

    def _copy(self, parts, begin, end):
        for part, leaf in zip(parts, self._leaves):
            leaf[begin:end] = part

    def __exit__(self, *_):
        self._copiers.shutdown()
        for copy_ in self._copies:
            copy_.result()


def pack_batch(count, sample_bytes, workers, tensors=0):
    """How many samples are fetched at once: large ones few, those that bring several tensors each, too, and enough batches for all workers."""
    sent = MOST_SENT // (tensors * workers * PREFETCHED) if tensors and workers else PACK_BATCH
    return max(1, min(PACK_BATCH, PACK_BYTES // max(sample_bytes, 1), count // (PACKS_PER_WORKER * max(workers, 1)), sent))


def tensors_in_columns(torch, probes):
    """How many tensors a sample has besides rows, at most."""
    columns = [part for part in probes if not isinstance(part, torch.Tensor)]
    return sum(max(sum(isinstance(leaf, torch.Tensor) for leaf in host_leaves_of(torch, value)) for value in column) for column in columns)


def upcoming(torch, loader, count):
    """The samples to pack: all, but in a trial that ends within an epoch only those that its steps will use, by the sampler's own order, drawn ahead and put back."""
    steps = os.environ.get("FULLWATT_STEPS", "") if is_trial() else ""
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


def is_trial():
    """Whether `tune` tries something out with this start."""
    return bool(os.environ.get("FULLWATT_TRIAL"))


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
    vars(own).update(batch_sampler=order, num_workers=workers, prefetch_factor=PREFETCHED if workers else None, persistent_workers=False,
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
