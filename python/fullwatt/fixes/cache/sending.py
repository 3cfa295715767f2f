"""Batches that are copied to the GPU while the step before them runs, on a stream of their own, for a program that will send them there."""


class Sender:
    """To one GPU."""

    def __init__(self, torch, device):
        self._torch = torch
        self._device = device
        self._stream = torch.cuda.Stream(device)

    def send(self, leaf, places):
        """These rows are on their way."""
        torch = self._torch
        host = torch.empty((len(places),) + leaf.shape[1:], dtype=leaf.dtype, pin_memory=True)
        torch.index_select(leaf, 0, places.host, out=host)
        with torch.cuda.stream(self._stream):
            there = host.to(self._device, non_blocking=True)
            return Sent(torch, host, there, self._stream.record_event())


class Sent:
    """One part of a batch, here and there."""

    def __init__(self, torch, host, there, arrived):
        self._torch = torch
        self.host = host
        self.device = there.device
        self._there, self._arrived = there, arrived

    def take(self):
        """What has arrived, once; whoever asks again gets a copy of his own."""
        there, self._there = self._there, None
        if there is None:
            return self.host.to(self.device, non_blocking=True)
        stream = self._torch.cuda.current_stream(self.device)
        stream.wait_event(self._arrived)
        there.record_stream(stream)
        return there
