"""fullwatt.Loader: batches from files or arrays, fetched by threads of C++ instead of processes of Python.

It stands where a DataLoader does: `for batch in loader`, with a dict of tensors for each batch. A batch is not copied, and stays as it is as long as one of its
tensors is held.
"""

import collections
import ctypes
import os
import warnings
import weakref

import torch

from . import loader_library, loader_memory
from .loader_copies import Copies, Grouping

WAIT_MS = 100  # that Ctrl-C may have to wait
GROUP_BYTES, MOST_GROUPED = 8 << 20, 16  # small batches for a GPU are fetched and copied together: each call takes as long as a megabyte or more

Field = collections.namedtuple("Field", "name dtype shape numbers sample_bytes")
Settings = collections.namedtuple("Settings", "samples batch_size shuffle seed drop_last rank world_size")


class Position:
    """The next batch of an epoch that the user gets."""

    def __init__(self, epoch, batch):
        self.epoch, self.batch = epoch, batch


class Loader:
    """Batches of the samples in a folder, or in arrays.

    folder      a folder of .npy files, whose first dimension counts the samples; with `image_size` one of JPEG and PNG files, with a folder for each class; or a
                dict of arrays
    fields      names, for files *NAME.npy, or a dict from names to patterns with `*` for anything; without it every .npy file is a field. Files that fit are one
                array, in the order of their names
    shuffle     another order in each epoch, decided by `seed` and the epoch's number alone
    workers     threads that fetch; half of the CPUs and 8 at most where nothing is said
    prefetch    batches that are in memory ahead
    pin_memory  in memory that a GPU reads by itself
    device      batches are copied there ahead, on a stream of their own
    rank        of `world_size` processes that share the samples, each taking its batches
    """

    def __init__(self, folder, batch_size=1, shuffle=False, fields=None, image_size=None, workers=None, seed=0, pin_memory=False, drop_last=False, device=None,
                 prefetch=3, rank=0, world_size=1):  # fmt: skip
        _check(batch_size >= 1, "batch_size is %r: a batch has at least one sample" % batch_size)
        _check(workers is None or workers >= 1, "workers is %r: at least one thread has to fetch" % workers)
        _check(prefetch >= 1, "prefetch is %r: at least one batch is fetched ahead" % prefetch)
        _check(0 <= rank < world_size, "rank is %r: of %r processes it counts from 0" % (rank, world_size))
        _check(drop_last or world_size == 1, "several processes need drop_last=True, so that all make as many steps")
        self._library = loader_library.load()
        data = self._open(folder, fields, image_size)
        self._close = weakref.finalize(self, self._library.close, data)
        self._data = data
        self.fields = [_field(*entry) for entry in self._library.fields(data)]
        self._names = [field.name for field in self.fields] if self._names is None else self._names
        self._settings = Settings(self._library.samples(data), int(batch_size), bool(shuffle), int(seed) % 2**64, bool(drop_last), rank, world_size)
        self.batch_size, self.drop_last, self.samples = int(batch_size), bool(drop_last), self._settings.samples
        self._workers = workers or max(1, min(8, len(os.sched_getaffinity(0)) // 2))
        self._prefetch = prefetch
        self._device = _device(device)
        self._grouped = 1 if self._device is None else self._grouped_for_device()
        self._memory = self._make_memory(pin_memory or self._device is not None)
        self._upcoming = self._position = Position(0, 0)

    def __len__(self):
        """Batches of an epoch."""
        of_all = self.batch_size * self._settings.world_size
        return self.samples // of_all if self.drop_last else -(-self.samples // of_all)

    def __iter__(self):
        """The next epoch, or the rest of the one that load_state_dict told of."""
        position = self._upcoming
        self._upcoming, self._position = Position(position.epoch + 1, 0), position
        batches = Batches(self, position)
        return Epoch(batches if self._device is None else Copies(torch, batches, self._device, self._grouping(position)), position)

    def set_epoch(self, epoch):
        """The number of the next epoch, as a DistributedSampler is told. The rest of that very epoch stays the rest."""
        if self._upcoming.epoch != epoch:
            self._upcoming = self._position = Position(epoch, 0)

    def state_dict(self):
        """Where the newest loop over the loader is, counted by the batches that it got."""
        return {"epoch": self._position.epoch, "batch": self._position.batch, **self._settings._asdict()}

    def load_state_dict(self, state):
        """The next loop goes on there."""
        changed = ["%s=%r, now %r" % (name, state.get(name), value) for name, value in self._settings._asdict().items() if state.get(name) != value]
        _check(not changed, "the state is of a loader with other settings: %s" % "; ".join(changed))
        self._upcoming = self._position = Position(state["epoch"], state["batch"])

    def _open(self, folder, fields, image_size):
        self._arrays = self._names = None
        if isinstance(folder, dict):
            _check(fields is None and image_size is None, "arrays need neither fields nor image_size")
            self._arrays = {name: _array(array) for name, array in folder.items()}  # kept, since they are not copied
            return self._library.open_arrays(self._arrays)
        if image_size is not None:
            _check(fields is None, "images have the fields images and labels: leave out fields")
            return self._library.open_images(os.fsencode(folder), *image_size)
        patterns = _patterns(folder, fields)
        self._names = list(patterns)  # a batch has them in the user's order
        return self._library.open_npy(os.fsencode(folder), patterns)

    def _make_memory(self, pin_memory):
        if pin_memory and torch.cuda.is_available():
            return loader_memory.Pinned(torch, self.fields, self.batch_size * self._grouped)
        if pin_memory:
            warnings.warn("pin_memory: torch sees no GPU, so batches lie in ordinary memory", stacklevel=3)
        return loader_memory.Ordinary(torch, self.fields, self.batch_size, self._prefetch + 2)

    def _grouped_for_device(self):
        """Processes that share the samples take turns batch by batch."""
        batch_bytes = max(1, self.batch_size * sum(field.sample_bytes for field in self.fields))
        return max(1, min(MOST_GROUPED, GROUP_BYTES // batch_bytes, len(self))) if self._settings.world_size == 1 else 1

    def _grouping(self, position):
        return Grouping(self._grouped, self.batch_size, position.batch % self._grouped, self.drop_last)

    def _options(self, position):
        settings, grouped = self._settings, self._grouped
        return loader_library.Options(self.batch_size * grouped, self._workers, self._prefetch, settings.shuffle, self.drop_last and grouped == 1, settings.seed, position.epoch,
                                      position.batch // grouped, settings.rank, settings.world_size)  # fmt: skip


class Epoch:
    """What a loop goes through; it counts what the loop got."""

    def __init__(self, source, position):
        self._source, self._position = source, position

    def __iter__(self):
        return self

    def __next__(self):
        batch = self._source.next()
        if batch is None:
            if self._position.batch:
                self._position.epoch, self._position.batch = self._position.epoch + 1, 0
            raise StopIteration
        self._position.batch += 1
        return batch


class Batches:
    """The batches of an epoch from a position on, in memory of the host. Its threads end with it."""

    def __init__(self, loader, position):
        self._library, self._memory, self._fields = loader._library, loader._memory, loader.fields
        self._loader = loader  # arrays must outlive the threads
        self._blocks, self._fresh = {}, None
        addresses = [address for _ in range(loader._prefetch) for address in self._take()]
        self._handle = self._library.begin(loader._data, loader._options(position), addresses)
        self._end = weakref.finalize(self, _end, self._library, self._handle, self._blocks)
        self._filled, self._samples = (ctypes.c_void_p * len(self._fields))(), ctypes.c_int64()

    def next(self, wait=True):
        """The next batch; None where the epoch is over, or where it is not there yet and is not waited for."""
        try:
            return self._next(wait) if self._end.alive else None
        except Exception:
            self._end()
            raise

    def _next(self, wait):
        if self._fresh is None:
            self._fresh = (ctypes.c_void_p * len(self._fields))(*self._take())
        while True:
            state = self._library.next(self._handle, WAIT_MS if wait else 0, self._fresh, self._filled, self._samples)
            if state != loader_library.NOT_YET or not wait:
                break
        if state == loader_library.NOT_YET:
            return None
        if state == loader_library.OVER:
            self._end()
            return None
        self._fresh = None
        tensors = {field.name: self._memory.tensor(self._blocks.pop(self._filled[index]), index, self._samples.value) for index, field in enumerate(self._fields)}
        return {name: tensors[name] for name in self._loader._names}

    def _take(self):
        """Addresses of a block for each field."""
        addresses = []
        for index in range(len(self._fields)):
            address, block = self._memory.take(index)
            self._blocks[address] = block
            addresses.append(address)
        return addresses


def _end(library, handle, blocks):
    """First the threads, then the memory that they fill."""
    library.end(handle)
    blocks.clear()


def _check(is_right, words):
    if not is_right:
        raise ValueError(words)


def _device(device):
    """None where batches stay in memory of the host."""
    device = None if device is None else torch.device(device)
    if device is None or device.type == "cpu":
        return None
    if device.type != "cuda" or not torch.cuda.is_available():
        raise RuntimeError("batches cannot be copied to %s: torch sees no such GPU; `fullwatt doctor` tells why" % device)
    return device


def _field(name, dtype, shape):
    kind = getattr(torch, dtype, None)
    _check(kind is not None, "the field %s holds %s, which torch %s does not have: save it as int32 or int64" % (name, dtype, torch.__version__))
    numbers = 1
    for length in shape:
        numbers *= length
    return Field(name, kind, shape, numbers, numbers * torch.empty(0, dtype=kind).element_size())


def _array(array):
    """Row after row in the byte order of this machine; copied only where it is not."""
    import numpy

    array = numpy.asarray(array, order="C")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _patterns(folder, fields):
    if isinstance(fields, dict):
        return fields
    if fields is not None:
        return {name: "*%s.npy" % name for name in fields}
    files = [name for name in sorted(os.listdir(folder)) if name.endswith(".npy")]
    if not files:
        raise FileNotFoundError("no file in %s ends with .npy" % os.fspath(folder))
    return {name[: -len(".npy")]: name for name in files}
