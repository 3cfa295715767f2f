"""Batches whose samples wait on the GPU, for a program that expects them on the CPU and sends them over.

What it gets is a promise: a tensor of the CPU as far as it can tell. When it sends that to the GPU it gets the samples that are there; whatever else it does with
it happens to an ordinary tensor of the CPU, made at that moment.
"""

from .ahead import DEPTH
from .column import Column
from .sending import Sender

LEARNING_BATCHES = 3  # in which it shows which parts of a batch go to a GPU, and which are used on the CPU
SHARE_OF_FREE = 0.5  # of the GPU's memory that is free then


class Order:
    """Where samples lie, one after the other; on a GPU, too, once that is asked for."""

    def __init__(self, host):
        self.host = host
        self._there = {}

    def on(self, device):
        """The whole of it on a GPU."""
        if device not in self._there:
            self._there[device] = self.host.to(device)
        return self._there[device]

    def part(self, begin, end):
        return Places(self, begin, end)


class Places:
    """The samples of one batch."""

    def __init__(self, order, begin, end):
        self._order, self._begin, self._end = order, begin, end
        self.host = order.host[begin:end]

    def __len__(self):
        return self._end - self._begin

    def on(self, device):
        return self._order.on(device)[self._begin:self._end]


class Placement:
    """Learns which parts of the batches go to a GPU, and keeps their samples there; where they do not fit, and batches are made ahead of their steps, it sends these.

    All `length` samples of the data set must fit, also in a trial that has packed some of them: it shows what a whole training would do.
    """

    def __init__(self, torch, leaves, length, most_bytes, goes_ahead=False):
        self._torch = torch
        self._leaves = leaves
        self._length = length
        self._most_bytes = most_bytes
        self._goes_ahead = goes_ahead
        self._kind = make_kind(torch)
        self._there = [leaf if leaf.is_cuda else None for leaf in leaves]  # the samples on the GPU
        is_open = (most_bytes > 0 or goes_ahead) and torch.cuda.is_available() and not self.is_whole
        self._left = LEARNING_BATCHES if is_open else 0
        self._longest = 0  # samples of a batch
        self._sender = None
        self._is_sent = [False] * len(leaves)
        self._sent = [None] * len(leaves)
        self._used = [False] * len(leaves)

    @property
    def is_learning(self):
        """Whether nothing is decided yet."""
        return self._left > 0

    @property
    def is_whole(self):
        """Whether no part of a batch is made on the CPU any more."""
        return all(there is not None or isinstance(leaf, Column) and not leaf.has_tensors for leaf, there in zip(self._leaves, self._there))

    def gather(self, places):
        """The parts of the batch of these samples."""
        if self.is_learning:
            self._longest = max(self._longest, len(places))
            return [self._watched(number, places) if type(leaf) is self._torch.Tensor and not leaf.is_cuda else self._part(number, places) for number, leaf in enumerate(self._leaves)]
        return [self._part(number, places) for number in range(len(self._leaves))]

    def learned(self):
        """After each batch; decides once enough were seen. Tells what it did then, otherwise nothing."""
        self._left -= 1
        if self._left > 0:
            return ""
        wanted = [number for number, device in enumerate(self._sent) if device is not None and not self._used[number]]
        if not wanted:
            return "no part of a batch is only sent to a GPU"
        free = min(int(SHARE_OF_FREE * self._torch.cuda.mem_get_info(self._sent[number])[0]) for number in wanted)
        room = min(self._most_bytes, free)
        sample_bytes = sum(self._leaves[number].nbytes // len(self._leaves[number]) for number in wanted)
        size = self._length * sample_bytes
        if size > room:
            told = "the %.1f GB of them do not fit on the GPU, where there is room for %.1f" % (size / 1e9, room / 1e9)
            return told + ("; batches are sent ahead of their steps" if self._send_ahead(wanted, sample_bytes, free) else "")
        for number in wanted:
            self._there[number] = self._leaves[number].to(self._sent[number])
        return "%.1f GB of them on %s" % (sum(self._there[number].nbytes for number in wanted) / 1e9, self._sent[wanted[0]])

    def _send_ahead(self, wanted, sample_bytes, free):
        """Whether they are, from now on."""
        if not self._goes_ahead or (DEPTH + 2) * self._longest * sample_bytes > free or len({self._sent[number] for number in wanted}) > 1:
            return False
        self._sender = Sender(self._torch, self._sent[wanted[0]])
        for number in wanted:
            self._is_sent[number] = True
        return True

    def _sent_part(self, number, places):
        """On its way to the GPU; None when there is no room for it after all."""
        try:
            part = self._sender.send(self._leaves[number], places)
        except RuntimeError:  # out of memory, there or of the pinned kind here
            self._is_sent[number] = False
            return None
        return self._kind(part.host.shape, part.host.dtype, make_host=lambda: part.host, make=part.take, device=part.device)

    def _watched(self, number, places):
        host = self._leaves[number].index_select(0, places.host)

        def sent(device):
            self._sent[number] = device

        def used():
            self._used[number] = True

        return self._kind(host.shape, host.dtype, host=host, sent=sent, used=used)

    def _part(self, number, places):
        leaf, there = self._leaves[number], self._there[number]
        if leaf.is_cuda:
            return leaf.index_select(0, places.on(leaf.device))
        sent = self._sent_part(number, places) if self._is_sent[number] else None
        if sent is not None:
            return sent
        if there is None:
            return leaf.index_select(0, places.host)
        shape = (len(places), *leaf.shape[1:])
        return self._kind(shape, leaf.dtype, make_host=lambda: leaf.index_select(0, places.host),
                          make=lambda: there.index_select(0, places.on(there.device)), device=there.device)  # fmt: skip


def make_kind(torch):
    """The class of promises."""
    tensor, cpu = torch.Tensor, torch.device("cpu")
    # What can be answered without the content.
    known = {tensor.size, tensor.dim, tensor.numel, tensor.nelement, tensor.__len__, tensor.is_floating_point, tensor.is_complex, tensor.element_size, tensor.ndimension}
    known |= {getattr(tensor, name).__get__ for name in ("shape", "dtype", "device", "layout", "ndim", "requires_grad", "is_cuda", "is_leaf", "itemsize", "nbytes")
              if hasattr(tensor, name)}  # fmt: skip

    class Promised(torch.Tensor):
        @staticmethod
        def __new__(cls, shape, dtype, *_, **__):
            return torch.Tensor._make_wrapper_subclass(cls, shape, dtype=dtype, device=cpu)

        def __init__(self, shape, dtype, host=None, make_host=None, make=None, device=None, sent=None, used=None, whole=None):
            self._host, self._make_host = host, make_host
            self._make, self._device = make, device
            self._sent, self._used = sent, used
            self._whole = whole  # the promise of which it is a part
            self._pins = False

        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            if function in known:
                with torch._C.DisableTorchFunctionSubclass():
                    return function(*args, **kwargs)
            return cls.__torch_dispatch__(function, types, args, kwargs)

        @classmethod
        def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
            args, kwargs = torch.utils._pytree.tree_map(lambda value: value.kept() if isinstance(value, cls) else value, (args, kwargs or {}))
            return function(*args, **kwargs)

        def kept(self):
            """The promise kept: an ordinary tensor of the CPU, from now on the truth."""
            if self._used is not None:
                self._used()
            return self._on_cpu()

        def _is_kept(self):
            return self._host is not None or self._whole is not None and self._whole._is_kept()

        def __getitem__(self, index):
            if type(index) is not int or not -len(self) <= index < len(self):
                return self.kept()[index]
            host = self._host[index] if self._host is not None else None
            make = (lambda: self._make()[index]) if self._make is not None else None
            return type(self)(self.shape[1:], self.dtype, host, lambda: self._on_cpu()[index], make, self._device, self._sent, self._used, self)

        def _on_cpu(self):
            if self._host is None:
                self._host = self._make_host()
            if self._pins and not self._host.is_pinned():
                self._host = self._host.pin_memory()
            return self._host

        def to(self, *args, **kwargs):
            """To the GPU it goes by being there."""
            device, dtype, _, memory_format = torch._C._nn._parse_to(*args, **kwargs)
            if self._sent is not None and device is not None and device.type == "cuda":
                self._sent(indexed(torch, device))
                return self._on_cpu().to(*args, **kwargs)
            if self._make is None or self._is_kept() or device is None or indexed(torch, device) != self._device:
                return self.kept().to(*args, **kwargs)
            there = self._make()
            if (dtype is None or dtype == there.dtype) and memory_format is None:
                return there
            return there.to(dtype=dtype, memory_format=memory_format) if memory_format is not None else there.to(dtype)

        def cuda(self, device=None, non_blocking=False, **kwargs):
            """The same by another name."""
            device = torch.device("cuda", device) if isinstance(device, int) else torch.device(device or "cuda")
            return self.to(device, non_blocking=non_blocking, **kwargs)

        def pin_memory(self, *_):
            """A copy of it in pinned memory is a promise of that."""
            self._pins = True
            return self

        def is_pinned(self, *_):
            return self._pins

        def __repr__(self, **_):
            return repr(self.kept())

    return Promised


def indexed(torch, device):
    """A device with its number."""
    if device.type != "cuda" or device.index is not None:
        return device
    return torch.device("cuda", torch.cuda.current_device())
