"""The batch that `tune --allow batch` takes on cards of 4 to 24 GB, which a memory fraction makes of a larger one; without a GPU, or without the program in FULLWATT_PROGRAM,
these tests skip themselves. Each takes about a minute and a half."""

import json
import os
import statistics
import subprocess
import sys
import unittest

os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # asking CUDA itself here would spoil it for the children that are forked

import torch  # noqa: E402

from support import ROOT, Case  # noqa: E402

PROGRAM = os.environ.get("FULLWATT_PROGRAM")
GIGABYTE = 1 << 30
OTHERS = [page[: -len(".md")] for page in os.listdir(os.path.join(ROOT, "docs", "fixes")) if page not in ("README.md", "batch-size.md")]

# A step waits for the host, so that larger batches are faster as long as there is room. One in 400 samples is `stretch` times as long.
TRAINING = """
import sys, time, torch
from torch import nn
card, batch, stretch, epochs = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
torch.cuda.set_per_process_memory_fraction(card * 2**30 / torch.cuda.get_device_properties(0).total_memory)
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 8000
    def __getitem__(self, i):
        return torch.full((2048 * (stretch if i % 400 == 77 else 1),), i / 8000)
def padded(rows):
    return nn.utils.rnn.pad_sequence(rows, batch_first=True)
layers = [nn.Linear(1, 128)]
for _ in range(10):
    layers += [nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 128)]
model = nn.Sequential(*layers).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for epoch in range(epochs):
    for x in torch.utils.data.DataLoader(Rows(), batch, shuffle=True, collate_fn=padded, drop_last=True):
        time.sleep(0.08)
        optimizer.zero_grad()
        model(x.cuda().reshape(-1, 1)).square().mean().backward()
        optimizer.step()
"""


@unittest.skipUnless(torch.cuda.is_available(), "no GPU")
@unittest.skipUnless(PROGRAM, "FULLWATT_PROGRAM is not set")
class CardsTest(Case):
    def fullwatt(self, command, flags, *arguments):
        script = self.write("train.py", TRAINING)
        words = [PROGRAM, command, *flags, "--", sys.executable, script, *map(str, arguments)]
        return subprocess.run(words, env=dict(os.environ, FULLWATT_HOME=self.scratch), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.scratch)

    def assert_fits(self, card, batch, stretch=1):
        """The batch grows until the card is full, none runs out of memory, memory is as predicted, and an epoch with the plan has room."""
        plan = os.path.join(self.scratch, "plan.yaml")
        flags = ["--anew", "--json", "--no-proof", "--allow", "batch", "--minutes", "2", "--output", plan, *(word for fix in OTHERS for word in ("--skip", fix))]
        tuned = self.fullwatt("tune", flags, card, batch, stretch, 1000)
        self.assertEqual(tuned.returncode, 0, tuned.stderr)
        tuning = json.loads(tuned.stdout)
        tried = tuning["batches"]
        self.assertEqual([row["size"] for row in tried if row["out_of_memory"]], [], tuned.stderr)
        self.assertTrue(tuning["tried"][-1]["kept"], tuned.stderr)
        self.assertIn("batch normalisation", tuning["tried"][-1]["caveat"])
        self.assertGreater(max(row["peak_bytes"] for row in tried), 0.5 * card * GIGABYTE, tuned.stderr)
        self.assertLess(max(row["peak_bytes"] for row in tried), card * GIGABYTE, tuned.stderr)
        errors = [abs(row["predicted_bytes"] / row["peak_bytes"] - 1) for row in tried if row["predicted_bytes"]]
        self.assertLessEqual(statistics.median(errors), 0.03, tuned.stderr)
        trained = self.fullwatt("run", ["--quiet", "--fix", plan], card, batch, stretch, 1)
        self.assertEqual(trained.returncode, 0, trained.stderr)

    def test_a_card_of_4_gb(self):
        self.assert_fits(4, 24)

    def test_a_card_of_6_gb(self):
        self.assert_fits(6, 36)

    def test_a_card_of_8_gb(self):
        self.assert_fits(8, 48)

    def test_a_card_of_12_gb(self):
        self.assert_fits(12, 72)

    def test_a_card_of_24_gb(self):
        self.assert_fits(24, 144)

    def test_the_longest_batch_of_the_epoch_has_room(self):
        self.assert_fits(8, 8, stretch=4)


if __name__ == "__main__":
    unittest.main()
