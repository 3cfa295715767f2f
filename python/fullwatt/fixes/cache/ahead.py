"""Batches that are made while the step before them runs: a thread goes ahead of the program, in the sampler's own order."""

import queue
import threading

DEPTH = 2  # batches that are ready
LOOK_S = 0.2  # how soon a thread notices that nobody wants its batches any more


class Ahead:
    """Calls `make` again and again in a thread, and gives what it gave in the same order; an exception of it is the last."""

    def __init__(self, make):
        self._made = queue.Queue(DEPTH)
        self._is_over = threading.Event()
        threading.Thread(target=run, args=(make, self._made, self._is_over), name="fullwatt-ahead", daemon=True).start()

    def next(self):
        """Waits for the next one."""
        made, error = self._made.get()
        if error is not None:
            raise error
        return made

    def close(self):
        """Nobody wants more."""
        self._is_over.set()


def run(make, made, is_over):
    """The thread; it knows nothing of its owner, so that this can go."""
    error = None
    while error is None and not is_over.is_set():
        result = None
        try:
            result = make()
        except Exception as raised:
            error = raised
        put(made, (result, error), is_over)


def put(made, item, is_over):
    """Waits for room as long as somebody may want it."""
    while not is_over.is_set():
        try:
            made.put(item, timeout=LOOK_S)
            return
        except queue.Full:
            pass


def why_not(torch, loader):
    """Why nobody may go ahead in a loader's order; empty when it may: then all random numbers of the order are drawn at its first step."""
    data = torch.utils.data
    known = (data.SequentialSampler, data.RandomSampler, data.SubsetRandomSampler, data.WeightedRandomSampler, data.DistributedSampler)
    if type(loader.batch_sampler) is not data.BatchSampler or type(loader.sampler) not in known:
        return "its sampler is %s, which may depend on the moment" % type(loader.sampler).__name__
    if getattr(loader.sampler, "generator", None) is not None:
        return "its sampler shares a generator with the program"
    return ""
