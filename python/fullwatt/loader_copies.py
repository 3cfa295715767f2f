"""Batches that are copied to a GPU while it computes on the ones before."""

import collections

DEPTH = 2  # copied batches that wait for the training


class Copies:
    """Takes batches from memory of the host, and copies them on a stream of their own."""

    def __init__(self, torch, batches, device):
        self._torch, self._batches, self._device = torch, batches, device
        self._stream = torch.cuda.Stream(device)
        self._copied, self._failure = collections.deque(), None

    def next(self):
        """The next batch, on the device; None where the epoch is over. What fails is told after the batches before it."""
        if not self._copied:
            if self._failure is not None:
                raise self._failure
            self._copy(self._batches.next())
        if not self._copied:
            return None
        batch, event = self._copied.popleft()
        training = self._torch.cuda.current_stream(self._device)
        training.wait_event(event)
        for tensor in batch.values():
            tensor.record_stream(training)  # its memory is not used again before the training's work on it is done
        self._copy_ahead()
        return batch

    def _copy_ahead(self):
        """What is fetched already; nothing is waited for."""
        try:
            while len(self._copied) < DEPTH and self._failure is None:
                batch = self._batches.next(wait=False)
                if batch is None:
                    return
                self._copy(batch)
        except Exception as failure:
            self._failure = failure

    def _copy(self, batch):
        if batch is None:
            return
        with self._torch.cuda.stream(self._stream):
            copies = {name: tensor.to(self._device, non_blocking=True) for name, tensor in batch.items()}
            self._copied.append((copies, self._stream.record_event()))
