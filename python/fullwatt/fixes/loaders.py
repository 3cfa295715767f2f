"""Fixes of the data loader: set when an epoch begins, since a program may build its loaders in any way."""

from ..describe import follows_epochs
from ..weak import Known
from .cache.fingerprint import fingerprint


class Loaders:
    """Changes a loader's settings before it makes its iterator. Loaders that are read without gradients are evaluations and stay as they are."""

    def __init__(self, tools):
        self._tools = tools
        self._torch = tools.torch
        self._report = tools.report
        self._changes = {}
        self._seen = Known()
        self._kept = Known()  # of loaders that keep their workers and did not before, what the data set looked like when these started

    def add(self, name, change):
        """`change(loader)` gives the settings to put into the loader, or why it must stay."""
        if not self._changes:
            self._tools.patches.replace(self._torch.utils.data.DataLoader, "__iter__", self._make_iter)
        self._changes[name] = change
        self._report.waiting(name, "until a loader is read")

    def _make_iter(self, original):
        loaders, tools = self, self._tools

        def __iter__(self):
            if tools.is_refused:
                return original(self)
            if loaders._seen.get(self) is None and loaders._torch.is_grad_enabled():
                loaders._seen.put(self, True)
                tools.agent.attempt(loaders._change, self)
            elif self._iterator is not None and loaders._kept.get(self) is not None:
                tools.agent.attempt(loaders._begin_epoch, self)
            return original(self)

        return __iter__

    def _change(self, loader):
        if getattr(loader, "_iterator", None) is not None:
            return
        for name, change in self._changes.items():
            answer = change(self._torch, loader)
            if isinstance(answer, str):
                if self._report.state(name) != "in-force":
                    self._report.refused(name, answer)
                continue
            self._tools.as_written.change(loader, answer)
            if answer.get("persistent_workers"):
                self._kept.put(loader, fingerprint(self._torch, loader.dataset, loader.collate_fn))
            self._report.in_force(name, ", ".join("%s=%s" % item for item in answer.items()))

    def _begin_epoch(self, loader):
        """Workers that were kept have the data set as it was when they started; where the program has changed it since, new ones are started, as without the fix."""
        now = fingerprint(self._torch, loader.dataset, loader.collate_fn)
        if now == self._kept.get(loader):
            draw_seed(self._torch, loader)
        else:
            loader._iterator = None
            self._kept.put(loader, now)


def draw_seed(torch, loader):
    """What every new iterator draws from the random state, so that everything after it stays as it was."""
    torch.empty((), dtype=torch.int64).random_(generator=loader.generator)


def workers(tools, entry):
    """More processes, or fewer, that fetch samples."""
    count = int(entry["count"])
    is_kept, is_pinned = entry.get("persistent", False), entry.get("pinned", False)

    def change(torch, loader):
        why = why_no_workers(torch, loader)
        if why:
            return why
        if loader.num_workers == count:
            return "the loader has %d workers already" % count
        changed = {"num_workers": count}
        if loader.num_workers == 0:
            changed["prefetch_factor"] = loader.prefetch_factor or 2
        if is_kept and not loader.persistent_workers and not follows_epochs(loader):
            changed["persistent_workers"] = True
        if is_pinned and not loader.pin_memory and torch.cuda.is_available():
            changed["pin_memory"] = True
        return changed

    tools.loaders.add("loader-workers", change)


def pinned(tools, _):
    """Batches in memory that the GPU can read by itself."""

    def change(torch, loader):
        if not torch.cuda.is_available():
            return "there is no GPU"
        if holds_gpu(torch, loader.dataset):
            return ON_GPU
        return "the loader pins its batches already" if loader.pin_memory else {"pin_memory": True}

    tools.loaders.add("loader-pinned", change)
    leave_gpu_batches(tools)


ON_GPU = "its batches are on the GPU already"


def leave_gpu_batches(tools):
    """What lies on the GPU when it is to be pinned stays there, where torch would end the program."""

    def make(original):
        def pin_memory(data, *args, **kwargs):
            if not (isinstance(data, tools.torch.Tensor) and data.is_cuda):
                return original(data, *args, **kwargs)
            if not tools.is_refused:
                tools.report.refused("loader-pinned", ON_GPU)
            return data

        return pin_memory

    tools.patches.replace(tools.torch.utils.data._utils.pin_memory, "pin_memory", make)


def prefetch(tools, entry):
    """Batches that each worker keeps ready."""
    factor = int(entry["factor"])

    def change(_, loader):
        if loader.num_workers == 0:
            return "the loader has no workers"
        return {"prefetch_factor": factor} if (loader.prefetch_factor or 2) != factor else "it is so already"

    tools.loaders.add("loader-prefetch", change)


def persistent(tools, _):
    """Workers that live through all epochs."""

    def change(torch, loader):
        if loader.num_workers == 0:
            return "the loader has no workers"
        if loader.persistent_workers:
            return "its workers are persistent already"
        if follows_epochs(loader):
            return "its data set changes with the epoch, which persistent workers would not see"
        return {"persistent_workers": True}

    tools.loaders.add("loader-persistent", change)


SHARED_HANDLES = ("h5py", "sqlite3", "lmdb", "zipfile", "tarfile", "_io")  # a fork shares their place in the file


def why_no_workers(torch, loader):
    """Why processes may not fetch for this loader; empty when they may."""
    data = loader.dataset
    if isinstance(data, torch.utils.data.IterableDataset):
        return "an iterable data set would give each sample once for each worker"
    if holds_gpu(torch, data):
        return "the data set is on the GPU, which worker processes cannot use"
    handle = shared_handle(data)
    if handle and loader.num_workers == 0:
        return "the data set keeps an open %s, which worker processes would share" % handle
    return ""


def holds_gpu(torch, data):
    """Whether a tensor of the data set lies on a GPU, as far as its attributes show."""
    return any(isinstance(value, torch.Tensor) and value.is_cuda for value in values_of(data))


def shared_handle(data):
    """The kind of an open file among the data set's attributes, or None."""
    for value in values_of(data):
        if type(value).__module__.split(".")[0] in SHARED_HANDLES:
            return type(value).__name__
    return None


def values_of(data, depth=3):
    """The attributes of a data set and of those that it is made of, and what lies in their lists."""
    for value in list(getattr(data, "__dict__", {}).values()):
        items = list(value)[:16] if isinstance(value, (list, tuple)) else [value]
        for item in items:
            yield item
            if depth > 0 and hasattr(item, "__getitem__") and hasattr(item, "__dict__"):
                yield from values_of(item, depth - 1)
