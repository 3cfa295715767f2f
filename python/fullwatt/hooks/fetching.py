"""How long a batch takes to make, in the loader's workers or, without workers, in the program itself."""

import os
from time import perf_counter_ns as now

try:
    from time import thread_time_ns as cpu_now
except ImportError:
    cpu_now = now

from .. import describe
from ..agent import LEARNING, OFF, OPENING, PHASES, WINDOW
from ..recorder import FETCH, WORKER

OF_A_WINDOW = 16  # fetches in the program itself; recording all would lengthen its steps
ALWAYS_RECORDED = 256  # batches; after as many again the recorded ones become rarer, twice each time
READ_EVERY = 16  # /proc/self/io is looked at this seldom
SPOOL_LIMIT = 32  # workers that get a spool: those of many epochs would fill the disk
GROUP = "fetching"


class Fetching:
    """Times fetches, all at first and then ever fewer, so that a run of any length finds room."""

    def __init__(self, agent, torch):
        self._agent = agent
        self._torch = torch
        self._reset()
        agent.at_fork.append(self._forked)

    def start(self):
        """Hooks the two fetchers: always in workers; in the program itself during the warm-up and in windows."""
        module = self._torch.utils.data._utils.fetch
        self._read_bytes, self._reads, self._in_window = None, 0, 0
        for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
            if not self._agent.patches.has(GROUP + name):
                self._agent.patches.replace(getattr(module, name), "fetch", self._make_fetch, GROUP + name)

    def stop(self):
        """Steady steps are not to pay for it."""
        for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
            self._agent.patches.restore(GROUP + name)

    def _forked(self):
        self._reset()
        self.start()

    def _reset(self):
        self._recorded = self._reads = self._to_pass = self._in_window = 0
        self._stride = 1
        self._read_bytes = None
        self._worker = None  # its number, once asked
        self._uneven = set()  # functions that put batches together whose rows differ

    def _make_fetch(self, original):
        fetching, agent = self, self._agent

        def fetch(self, possibly_batched_index):
            if fetching._to_pass > 0 and not agent.detail:
                fetching._to_pass -= 1
                return original(self, possibly_batched_index)
            return fetching._look(original, self, possibly_batched_index)

        return fetch

    def _look(self, original, fetcher, index):
        """A fetch that may be recorded: the first of a window, else when enough were let pass."""
        detail = self._agent.detail
        if detail & OFF or detail & OPENING and not self._agent.guard(self._open):
            return original(fetcher, index)
        if detail & (WINDOW | PHASES):
            self._in_window += 1
            if self._in_window > OF_A_WINDOW:
                return original(fetcher, index)
        elif self._to_pass > 0 and not detail & LEARNING:
            self._to_pass -= 1
            return original(fetcher, index)
        self._to_pass = self._stride - 1
        return self._timed(original, fetcher, index)

    def _open(self):
        """In a worker the first batch opens its small spool; a program's own spool is opened by its loader."""
        information = self._torch.utils.data.get_worker_info()
        if information is None:
            return False
        self._worker = information.id
        if spools(self._agent.folder) >= SPOOL_LIMIT:
            self._agent.detail = OFF
            return False
        self._agent.detail &= ~LEARNING
        return self._agent.ready(role=WORKER)

    def _timed(self, original, fetcher, index):
        collate = TimedCollate(fetcher.collate_fn)
        fetcher.collate_fn = collate
        start, cpu = now(), cpu_now()
        batch = None
        try:
            batch = original(fetcher, index)
            return batch
        finally:
            fetcher.collate_fn = collate.function
            self._agent.guard(self._record, index, start, now() - start, cpu_now() - cpu, collate.spent_ns)
            self._agent.guard(self._see_rows, fetcher, index, batch)

    def _record(self, index, start, duration, cpu, collate):
        samples = len(index) if hasattr(index, "__len__") else 1
        number = 0 if self._worker is None else self._worker + 1
        self._agent.recorder.record(FETCH, 0, number, start, duration, cpu, collate, samples, self._kib_read())
        self._recorded += 1
        if self._recorded % ALWAYS_RECORDED == 0:
            self._stride *= 2

    def _see_rows(self, fetcher, index, batch):
        """Tells once of a function of the program's own whose batches differ in more than their length, as padded ones do: its work cannot be kept with the samples."""
        function = describe.function_name(fetcher.collate_fn)
        if batch is None or not hasattr(index, "__len__") or function == "default_collate" or function in self._uneven:
            return
        rows = row_shapes(self._torch, batch, len(index))
        seen = vars(fetcher).setdefault("_fullwatt_rows", {})  # by how many samples are in a batch
        if None in rows or rows != seen.setdefault(len(index), rows):
            self._uneven.add(function)
            self._agent.facts.add("padding", function=function)

    def _kib_read(self):
        """KiB that came from the disk since the last look."""
        self._reads += 1
        if self._reads % READ_EVERY != 1:
            return 0
        total = disk_bytes()
        before, self._read_bytes = self._read_bytes, total
        return 0 if before is None or total is None else (total - before) >> 10


class TimedCollate:
    """The user's collate function with a clock."""

    def __init__(self, function):
        self.function = function
        self.spent_ns = 0

    def __call__(self, data):
        start = now()
        try:
            return self.function(data)
        finally:
            self.spent_ns += now() - start


def row_shapes(torch, batch, count):
    """Of a batch's tensors, which have a row for each sample; None stands for what has not. Lists with a value for each sample count as alike."""
    if isinstance(batch, torch.Tensor):
        return [batch.shape[1:] if batch.dim() > 0 and batch.shape[0] == count else None]
    if isinstance(batch, dict):
        parts = batch.values()
    elif isinstance(batch, (list, tuple)):
        parts = batch if len(batch) != count else ()
    else:
        return [None]
    return [shape for part in parts for shape in row_shapes(torch, part, count)]


def spools(folder):
    """How many spools the run has already."""
    try:
        return sum(1 for name in os.listdir(folder) if name.endswith(".fw"))
    except OSError:
        return 0


def disk_bytes():
    """What this process read from the disk, not from the page cache."""
    try:
        with open("/proc/self/io", "rb") as file:
            for line in file:
                if line.startswith(b"read_bytes:"):
                    return int(line.split()[1])
    except (OSError, ValueError):
        pass
    return None
