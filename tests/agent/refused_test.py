"""A plan that turns out to be for another model when that is first called: what was changed by then goes back, and the training goes on as it is written."""

import json
import unittest

from fixes_test import HAS_CALL_PLACE, TRAIN, FixCase
from support import MODEL

OTHER = {"model": "Other-00000000"}
TRAINING = """
import json, torch
torch.manual_seed(0)
data = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
loader = torch.utils.data.DataLoader(data, batch_size=8, %(options)s)
told = []
for epoch in range(3):
    lengths = []
    for x, y in loader:
        lengths.append(len(x))
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
    settings = [loader.num_workers, loader.prefetch_factor, loader.persistent_workers, loader.batch_size, loader._iterator is None, len(loader)]
    told.append([lengths, settings, optimizer.param_groups[0]["lr"], schedule.get_last_lr(), loss.item(), torch.rand(1).item()])
    schedule.step()
print(json.dumps(told))
"""


class RefusedTest(FixCase):
    def both(self, fixes, options="shuffle=True"):
        """What three epochs tell with a refused plan, and without one."""
        source = TRAINING % {"options": options}
        plain, outcome = self.train([], source), self.train(fixes, source, OTHER)
        for fix in fixes:
            self.assert_refused(outcome, fix["id"], "it was made for the model Other")
        return json.loads(outcome.out), json.loads(plain.out)

    def assert_as_written(self, epochs, plain):
        """But for the samples that were on their way already."""
        for (_, settings, *rates, _, drawn), (_, own_settings, *own_rates, _, own_drawn) in zip(epochs, plain):
            self.assertEqual((settings, rates, drawn), (own_settings, own_rates, own_drawn))
        self.assertEqual([epoch[0] for epoch in epochs[1:]], [epoch[0] for epoch in plain[1:]])

    def test_a_larger_batch(self):
        larger = {"id": "batch-size", "size": 16, "learning_rate": "3"}
        for options in ("shuffle=True", "shuffle=True, drop_last=True", "shuffle=False"):
            with self.subTest(options):
                epochs, plain = self.both([larger], options)
                self.assertEqual(epochs[0][0], [16] + [8] * 6)
                self.assert_as_written(epochs, plain)

    def test_a_larger_batch_of_persistent_workers(self):
        epochs, plain = self.both([{"id": "batch-size", "size": 16}], "shuffle=True, num_workers=1, persistent_workers=True, prefetch_factor=1")
        self.assertEqual((epochs[0][0][0], epochs[0][0][-1]), (16, 8))
        self.assert_as_written(epochs, plain)

    def test_a_batch_that_is_no_multiple(self):
        epochs, plain = self.both([{"id": "batch-size", "size": 20}])
        self.assertEqual(epochs[0][0], [20] + [8] * 5 + [4])
        self.assert_as_written(epochs, plain)

    def test_batches_in_parts(self):
        for options in ("shuffle=True", "shuffle=True, drop_last=True"):
            with self.subTest(options):
                epochs, plain = self.both([{"id": "accumulation", "parts": 2}], options)
                self.assertEqual((epochs[0][0][:3], sum(epochs[0][0])), ([4, 8, 8], 64 if "drop" not in options else 60))
                self.assert_as_written(epochs, plain)

    def test_a_larger_batch_and_parts_from_the_cache(self):
        for options in ("shuffle=True", "shuffle=True, drop_last=True"):
            with self.subTest(options):
                cache = {"id": "sample-cache", "gigabytes": 1, "ahead": True}
                epochs, plain = self.both([cache, {"id": "accumulation", "parts": 2}, {"id": "batch-size", "size": 16, "learning_rate": "3"}], options)
                self.assertEqual(epochs[0][0][-2:], [8, 8])
                self.assertEqual(sum(epochs[0][0]), 64)
                self.assert_as_written(epochs, plain)

    def test_workers(self):
        for options in ("shuffle=True", "shuffle=True, num_workers=1", "shuffle=True, num_workers=1, persistent_workers=True"):
            with self.subTest(options):
                fixes = [{"id": "loader-workers", "count": 2}, {"id": "loader-prefetch", "factor": 3}, {"id": "loader-persistent"}]
                epochs, plain = self.both(fixes, options)
                self.assertEqual(epochs, plain)

    def test_what_the_program_has_set_meanwhile_is_in_force(self):
        source = """
import torch
from torch.autograd import set_detect_anomaly
from torch import set_num_threads
torch.backends.cudnn.benchmark = True
torch.backends.cudnn.benchmark = False
torch.backends.cudnn.allow_tf32 = False
torch.set_float32_matmul_precision("medium")
set_num_threads(3)
set_detect_anomaly(True)
def tell():
    print(torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision(), torch.get_num_threads(), torch.is_anomaly_enabled())
""" + MODEL + TRAIN + """
tell()
with set_detect_anomaly(False):
    tell()
tell()
set_num_threads(2)
with torch.autograd.detect_anomaly(check_nan=False):
    tell()
"""
        fixes = ["cudnn-benchmark", "tf32", {"id": "threads", "count": 1}, "anomaly-off"]
        self.assertEqual(self.train(fixes, source, OTHER).out, self.train([], source).out)

    @unittest.skipUnless(HAS_CALL_PLACE, "this torch has no place for it")
    def test_a_piece_that_cannot_be_put_back_does_not_keep_the_others(self):
        broken = "from fullwatt.fixes.learning_rate import LearningRates\nLearningRates._move = None\n"
        source = (TRAINING % {"options": "shuffle=True"}).replace("told = []\n", "told = []\n" + broken)
        outcome = self.train([{"id": "batch-size", "size": 16, "learning_rate": "3"}, "bf16"], source, OTHER)
        self.assert_refused(outcome, "batch-size", "it was made for the model Other")
        self.assertEqual(json.loads(outcome.out)[1][0], [8] * 8)


if __name__ == "__main__":
    unittest.main()
