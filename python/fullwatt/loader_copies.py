"""Batches that are copied to a GPU while it computes on the ones before."""

import collections

DEPTH = 2  # copied groups that wait for the training

# Batches that are fetched and copied as one, since each call takes longer than a small batch: how many of how many samples, of which so many were had already. Whether the
# last one may be shorter.
Grouping = collections.namedtuple("Grouping", "batches samples had drop_last", defaults=(1, None, 0, False))


class Copies:
    """Takes groups of batches from memory of the host, and copies them on a stream of their own."""

    def __init__(self, torch, groups, device, grouping=Grouping()):
        self._torch, self._groups, self._device, self._grouping = torch, groups, device, grouping
        self._had = grouping.had
        self._stream = torch.cuda.Stream(device)
        self._copied, self._failure = collections.deque(), None
        self._group, self._event, self._user = None, None, None  # which batches are given out of now, and the stream that may work on it
        self._batches = collections.deque()
        self._current_stream = current_stream_of(torch, device)

    def next(self):
        """The next batch, on the device; None where the epoch is over. What fails is told after the batches before it."""
        while not self._batches:
            if not self._open_group():
                return None
        batch = self._batches.popleft()
        if self._current_stream() != self._user:
            self._let_use()
        if len(self._copied) < DEPTH:
            self._copy_ahead()
        return batch

    def _open_group(self):
        """False where there is none any more."""
        if not self._copied:
            if self._failure is not None:
                raise self._failure
            self._copy(self._groups.next())
        if not self._copied:
            return False
        (self._group, self._event), self._user = self._copied.popleft(), None
        self._batches.extend(self._batches_of(self._group))
        return True

    def _batches_of(self, group):
        """Those that were not had yet."""
        if self._grouping.batches == 1:
            return [group]
        size = self._grouping.samples
        parts = {name: tensor.split(size) for name, tensor in group.items()}
        batches = [dict(zip(parts, tensors)) for tensors in zip(*parts.values())]
        if self._grouping.drop_last and len(next(iter(batches[-1].values()))) < size:
            batches.pop()
        had, self._had = self._had, 0
        return batches[had:]

    def _let_use(self):
        """The stream that is current now may work on the group."""
        user = self._torch.cuda.current_stream(self._device)
        user.wait_event(self._event)
        for tensor in self._group.values():
            tensor.record_stream(user)  # its memory is not used again before that stream's work on it is done
        self._user = self._current_stream()

    def _copy_ahead(self):
        """What is fetched already; nothing is waited for."""
        try:
            while len(self._copied) < DEPTH and self._failure is None:
                group = self._groups.next(wait=False)
                if group is None:
                    return
                self._copy(group)
        except Exception as failure:
            self._failure = failure

    def _copy(self, group):
        if group is None:
            return
        with self._torch.cuda.stream(self._stream):
            copies = {name: tensor.to(self._device, non_blocking=True) for name, tensor in group.items()}
            self._copied.append((copies, self._stream.record_event()))


def current_stream_of(torch, device):
    """Gives a function that tells which stream is current, to be compared: by its number where torch gives that, since every batch asks for it."""
    number = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
    if number is None:
        return lambda: torch.cuda.current_stream(device)
    index = torch.cuda.current_device() if device.index is None else device.index
    return lambda: number(index)
