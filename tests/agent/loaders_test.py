"""Fixes of the data loader, applied to programs."""

import types
import unittest
from unittest import mock

import torch

from fixes_test import FixCase
from support import MODEL

from fullwatt.fixes import loaders


class LoadersTest(FixCase):
    LOADER = """
loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        loss = loss_of(x, y)
        loss.backward()
        optimizer.step()
        print("%.17g" % loss.item())
"""

    def test_workers_come_and_the_losses_stay(self):
        plain = self.train([], MODEL + self.LOADER)
        fixes = [{"id": "loader-workers", "count": 2}, {"id": "loader-prefetch", "factor": 4}, "loader-persistent"]
        outcome = self.train(fixes, MODEL + self.LOADER + "print(loader.num_workers, loader.prefetch_factor, loader.persistent_workers)")
        lines = outcome.out.strip().split("\n")
        self.assertEqual(lines[:-1], plain.out.strip().split("\n"))
        self.assertEqual(lines[-1], "2 4 True")
        for name in ("loader-workers", "loader-prefetch", "loader-persistent"):
            self.assert_in_force(outcome, name)

    KEPT = [{"id": "loader-workers", "count": 2, "persistent": True}]
    CHANGING = """
import numpy, os, torch
class Data(torch.utils.data.Dataset):
    def __init__(self):
        self.scale, self.values = 1.0, numpy.arange(512, dtype="float32").reshape(64, 8) / 512
    def __len__(self):
        return 64
    def __getitem__(self, i):
        worker = torch.utils.data.get_worker_info()
        return torch.from_numpy(self.values[i] * self.scale), float(i % 3), os.getpid() if worker else 0
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = Data()
loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
processes = []
for epoch in range(3):
    if epoch == 2:
        CHANGE
    processes.append(set())
    for x, y, process in loader:
        processes[-1] |= set(process.tolist())
        optimizer.zero_grad()
        loss = (model(x)[:, 0] - y).pow(2).mean()
        loss.backward()
        optimizer.step()
        print("%.17g" % loss.item())
print(*(processes[epoch] == processes[epoch - 1] for epoch in (1, 2)))
"""

    def test_workers_that_came_are_kept_until_the_data_set_changes(self):
        for change, are_kept in (("pass", True), ("data.scale = 0.5", False), ("data.values *= 2", False)):
            with self.subTest(change):
                source = self.CHANGING.replace("CHANGE", change)
                plain, outcome = (self.train(fixes, source).out.strip().split("\n") for fixes in ([], self.KEPT))
                self.assertEqual(outcome[:-1], plain[:-1])
                self.assertEqual(outcome[-1], "True %s" % are_kept)

    def test_workers_of_a_data_set_that_is_told_of_epochs_are_not_kept(self):
        source = self.CHANGING.replace("CHANGE", "pass").replace("    def __len__", "    def set_epoch(self, epoch):\n        pass\n    def __len__")
        outcome = self.train(self.KEPT, source)
        self.assert_in_force(outcome, "loader-workers")
        self.assertEqual(outcome.out.split()[-2:], ["False", "False"])

    def test_an_evaluations_loader_stays(self):
        outcome = self.train([{"id": "loader-workers", "count": 2}], MODEL + self.LOADER + """
other = torch.utils.data.DataLoader(data, batch_size=4)
with torch.no_grad():
    for x, y in other:
        loss_of(x, y)
print(other.num_workers)
""")
        self.assertEqual(outcome.out.split()[-1], "0")

    def test_data_that_processes_cannot_share_is_refused(self):
        iterable = """
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter([data[i] for i in range(64)])
loader = torch.utils.data.DataLoader(Stream(), batch_size=4)
""" + self.LOADER.split("\n", 2)[2]
        outcome = self.train([{"id": "loader-workers", "count": 2}], MODEL + iterable)
        self.assert_refused(outcome, "loader-workers", "iterable")
        opened = """
class Opened(torch.utils.data.Dataset):
    def __init__(self):
        self.file = open(__file__)
    def __len__(self):
        return 64
    def __getitem__(self, i):
        return data[i]
loader = torch.utils.data.DataLoader(torch.utils.data.Subset(Opened(), range(64)), batch_size=4)
""" + self.LOADER.split("\n", 2)[2]
        outcome = self.train([{"id": "loader-workers", "count": 2}], MODEL + opened)
        self.assert_refused(outcome, "loader-workers", "TextIOWrapper")

    def test_workers_pin_their_batches_where_there_is_a_gpu(self):
        changes = {}
        tools = types.SimpleNamespace(loaders=types.SimpleNamespace(add=changes.__setitem__))
        loaders.workers(tools, {"count": 2, "pinned": True})
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.zeros(8, 1)))
        for is_there in (False, True):
            with mock.patch.object(torch.cuda, "is_available", lambda: is_there):
                changed = changes["loader-workers"](torch, loader)
                self.assertEqual(changed.get("pin_memory", False), is_there)
                self.assertEqual(changed["num_workers"], 2)

    def test_without_a_gpu_nothing_of_it_is_tried(self):
        if torch.cuda.is_available():
            self.skipTest("there is a GPU")
        fixes = ["loader-pinned", "non-blocking", "backward-inline"]
        outcome = self.train(fixes, MODEL + self.LOADER)
        for name in fixes:
            self.assert_refused(outcome, name, "no GPU")


if __name__ == "__main__":
    unittest.main()
