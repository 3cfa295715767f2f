"""How fullwatt.Loader copies batches to a GPU: in which order, in groups or one by one, with a torch that only counts."""

import pathlib
import sys
import unittest

import numpy as np
import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "python"))
from fullwatt import loader_memory  # noqa: E402
from fullwatt.loader import GROUP_BYTES, Batches, Loader, Position  # noqa: E402
from fullwatt.loader_copies import Copies, Grouping  # noqa: E402


class CopiesTest(unittest.TestCase):
    class FakeTorch:
        def __init__(self):
            self.cuda, self.waited = self, 0

        def Stream(self, device):
            return self

        def current_stream(self, device):
            return self

        def stream(self, stream):
            return self

        def wait_event(self, event):
            self.waited += 1

        def record_event(self):
            return object()

        def __enter__(self):
            return self

        def __exit__(self, *failure):
            return False

    class FakeTensor:
        def __init__(self, value, place="host"):
            self.value, self.place, self.streams = value, place, 0

        def to(self, device, non_blocking):
            return type(self)(self.value, device)

        def record_stream(self, stream):
            self.streams += 1

        def split(self, size):
            return [type(self)(part, self.place) for part in self.value.split(size)]

        def __len__(self):
            return len(self.value)

    class FakeBatches:
        def __init__(self, script):
            self.script = list(script)

        def next(self, wait=True):
            step = self.script.pop(0) if self.script else None
            if step == "not yet":
                return self.next() if wait else None
            if isinstance(step, Exception):
                raise step
            return None if step is None else {"x": CopiesTest.FakeTensor(step)}

    def taken(self, *script):
        torch_like = self.FakeTorch()
        copies, found = Copies(torch_like, self.FakeBatches(script), "gpu"), []
        try:
            for batch in iter(copies.next, None):
                self.assertEqual((batch["x"].place, batch["x"].streams), ("gpu", 1))
                found.append(batch["x"].value)
        except OSError as failure:
            found.append(str(failure))
        self.assertEqual(torch_like.waited, sum(isinstance(value, int) for value in found))
        return found

    def test_batches_come_in_order_and_failures_after_them(self):
        self.assertEqual(self.taken(), [])
        self.assertEqual(self.taken(1, 2, 3, 4, 5), [1, 2, 3, 4, 5])
        self.assertEqual(self.taken(1, "not yet", 2, "not yet", "not yet", 3), [1, 2, 3])
        self.assertEqual(self.taken(1, 2, OSError("cut")), [1, 2, "cut"])
        self.assertEqual(self.taken(OSError("cut")), ["cut"])

    class Wrapped:
        """A loader's own batches, as tensors that only count."""

        def __init__(self, batches):
            self.batches = batches

        def next(self, wait=True):
            group = self.batches.next(wait)
            return group and {name: CopiesTest.FakeTensor(tensor) for name, tensor in group.items()}

    def grouped(self, grouped, position=0, **options):
        """The numbers of a loader's samples, batch by batch, that are copied in groups of so many batches."""
        samples = {"numbers": np.arange(103), "rows": np.arange(206).reshape(103, 2)}
        loader = Loader(samples, batch_size=10, shuffle=True, seed=3, **options)
        loader._grouped = grouped
        loader._memory = loader_memory.Ordinary(torch, loader.fields, 10 * grouped, 5)
        place = Position(2, position)
        torch_like = self.FakeTorch()
        copies, found = Copies(torch_like, self.Wrapped(Batches(loader, place)), "gpu", loader._grouping(place)), []
        for batch in iter(copies.next, None):
            numbers, rows = batch["numbers"].value, batch["rows"].value
            self.assertTrue(torch.equal(rows[:, 0], 2 * numbers))
            found.append(numbers.tolist())
        self.assertEqual(torch_like.waited, len({(position + number) // grouped for number in range(len(found))}))
        return found

    def test_batches_are_the_same_in_groups(self):
        one_by_one = self.grouped(1)
        self.assertEqual([len(batch) for batch in one_by_one], [10] * 10 + [3])
        for grouped in (2, 3, 4, 11):
            self.assertEqual(self.grouped(grouped), one_by_one)
            self.assertEqual(self.grouped(grouped, drop_last=True), one_by_one[:-1])
            for position in (1, 4, 7, 10):
                self.assertEqual(self.grouped(grouped, position), one_by_one[position:])

    def test_another_stream_waits_for_the_same_group(self):
        torch_like = self.FakeTorch()
        streams = [self.FakeTorch() for _ in range(3)]
        torch_like.current_stream = lambda device: streams[0]
        copies = Copies(torch_like, self.FakeBatches([torch.arange(6)]), "gpu", Grouping(3, 2, 0, False))
        copies.next()
        copies.next()
        torch_like.current_stream = lambda device: streams[1]
        copies.next()
        self.assertEqual([stream.waited for stream in streams], [1, 1, 0])

    def test_small_batches_for_a_gpu_are_grouped(self):
        grouped = lambda shape, batch, **options: Loader({"x": np.zeros(shape, np.uint8)}, batch_size=batch, **options)._grouped_for_device()  # noqa: E731
        self.assertEqual(grouped((4096, 1000), 64), 16)
        self.assertEqual(grouped((128, 3, 160, 320), 16), GROUP_BYTES // (16 * 3 * 160 * 320))
        self.assertEqual(grouped((64, 3, 160, 320), 64), 1)
        self.assertEqual(grouped((100, 4), 50), 2)
        self.assertEqual(grouped((4096, 1000), 64, rank=1, world_size=2, drop_last=True), 1)


if __name__ == "__main__":
    unittest.main()
