"""The fix that changes the batch size."""

import unittest

from fixes_test import FixCase

TRAINING = """
import torch
torch.manual_seed(0)
data = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1000)
held_out = torch.utils.data.DataLoader(data, batch_size=4)
loader = torch.utils.data.DataLoader(data, %s)
print(len(loader))
for epoch in range(2):
    for x, y in loader:
        loss = ((model(x) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        print(len(x), [len(a) for a, _ in held_out][0], optimizer.param_groups[0]["lr"])
"""
SCHEDULED = """
import torch
from torch.optim.lr_scheduler import *
from torch.utils.data import DataLoader
data = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
%(loader)s
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD([{"params": [model.weight]}, {"params": [model.bias], "lr": 0.3}], lr=0.1)
schedule = %(schedule)s
%(late)s
for x, y in loader:
    print(["%%.6g" %% group["lr"] for group in optimizer.param_groups])
    ((model(x) - y) ** 2).mean().backward()
    optimizer.step()
    schedule.step()
"""
LARGER = {"id": "batch-size", "size": 16, "learning_rate": "4"}


class BatchTest(FixCase):
    def test_a_loader_that_shuffles_gets_it_at_once_and_the_learning_rate_follows(self):
        outcome = self.train([LARGER], TRAINING % "batch_size=4, shuffle=True")
        self.assertEqual(outcome.out, "4\n" + "16 4 0.4\n" * 2)
        self.assert_in_force(outcome, "batch-size")
        self.assertEqual(self.fix(outcome, "batch-size")["text"], "16 instead of 4, learning rate × 4")

    def test_another_loader_gets_it_when_it_is_read_for_training(self):
        outcome = self.train([{"id": "batch-size", "size": 16}], TRAINING % "batch_size=4")
        self.assertEqual(outcome.out, "16\n" + "16 4 0.1\n" * 2)

    def test_the_learning_rate_follows_late_where_the_loader_does(self):
        for schedule in ("StepLR(optimizer, 1, 0.5)", "LambdaLR(optimizer, lambda step: (1 + step) / 10)", "LinearLR(optimizer, 0.5, 1, 2)", "CosineAnnealingLR(optimizer, 4)",
                         "SequentialLR(optimizer, [ConstantLR(optimizer, 0.1, 2), ExponentialLR(optimizer, 0.5)], [2])", "OneCycleLR(optimizer, 1.0, 10, div_factor=10)"):  # fmt: skip
            early = self.train([LARGER], SCHEDULED % {"loader": "loader = DataLoader(data, 4, shuffle=True)", "schedule": schedule, "late": ""})
            late = self.train([LARGER], SCHEDULED % {"loader": "", "schedule": schedule, "late": "loader = DataLoader(data, 4)"})
            self.assertEqual(late.out, early.out, schedule)
        self.assertEqual(self.train([LARGER], TRAINING % "batch_size=4").out, "16\n" + "16 4 0.4\n" * 2)

    def test_where_no_loader_has_it_the_learning_rate_stays(self):
        outcome = self.train([dict(LARGER, size=40)], TRAINING % "batch_size=4, shuffle=True")
        self.assert_refused(outcome, "batch-size", "64 samples only")
        self.assertEqual(outcome.out, "16\n" + "4 4 0.1\n" * 2)

    def test_batches_of_torchs_own_sampler_that_the_program_has_made_are_changed(self):
        own = "batch_sampler=torch.utils.data.BatchSampler(torch.utils.data.RandomSampler(data), 4, False)"
        outcome = self.train([LARGER], TRAINING % own)
        self.assertEqual(outcome.out, "16\n" + "16 4 0.4\n" * 2)
        self.assertEqual(self.fix(outcome, "batch-size")["text"], "16 instead of 4, learning rate × 4")

    def test_it_stands_beside_the_cache(self):
        outcome = self.train([{"id": "sample-cache", "gigabytes": 1}, LARGER], TRAINING % "batch_size=4, shuffle=True")
        self.assertEqual(outcome.out, "4\n" + "16 4 0.4\n" * 2)
        self.assert_in_force(outcome, "sample-cache")

    def test_batches_of_the_programs_own_and_small_data_sets_are_left_alone(self):
        own = "batch_sampler=torch.utils.data.BatchSampler(torch.utils.data.RandomSampler(data), 4, False)"
        self.assertIn("4 4", self.train([dict(LARGER, size=40)], TRAINING % "batch_size=4, shuffle=True").out)
        self.assert_refused(self.train([dict(LARGER, size=40)], TRAINING % "batch_size=4, shuffle=True"), "batch-size", "64 samples only")
        self.assert_refused(self.train([LARGER], TRAINING % ("batch_sampler=type('Own', (torch.utils.data.BatchSampler,), {})" + own[len("batch_sampler=torch.utils.data.BatchSampler"):])),
                            "batch-size", "by size")  # fmt: skip


if __name__ == "__main__":
    unittest.main()
