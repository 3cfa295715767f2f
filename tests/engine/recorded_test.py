"""A training of the engine's, or by its loader, under `fullwatt run`: its steps stand in the run folder and are explained, as any program's in Python are."""

import json
import os
import subprocess
import sys
import unittest

from support import PROGRAM, EngineCase

FULLWATT = os.environ["FULLWATT_PROGRAM"]
LOADING = """
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(2):
    for batch in fullwatt.Loader({"x": torch.rand(800, 4)}, batch_size=8):
        optimizer.zero_grad()
        model(batch["x"]).sum().backward()
        optimizer.step()
"""


class RecordedTest(EngineCase):
    def record(self, *arguments, options=(), code=0, program=PROGRAM):
        """The report of a training under `fullwatt run`, and what was told."""
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "FULLWATT_HOME": str(self.folder / "home")}
        answer = subprocess.run([FULLWATT, "run", *options, "--", program, *map(str, arguments)], capture_output=True, text=True, timeout=300, cwd=self.folder, env=environment)
        self.assertEqual(answer.returncode, code, answer.stdout + answer.stderr)
        (report,) = self.folder.rglob("report.json")
        return json.loads(report.read_text()), answer.stdout + answer.stderr

    def test_steps_samples_and_phases_are_those_of_the_training(self):
        self.write_windows(160)
        report, told = self.record(self.configure(train_epochs=10))
        self.assertEqual(report["steps"], 200)
        self.assertAlmostEqual(report["samples_per_step"], 8)
        causes = {cause["id"]: cause["charged_ms"] for cause in report["causes"]}
        for cause in ("backward", "forward", "optimizer"):
            self.assertGreater(causes[cause], 0)
        self.assertIn("backward pass", told)
        self.assertEqual(len(list(self.folder.rglob("spool-*.fw"))), 1)

    def test_it_ends_after_the_steps_that_were_asked_for_with_a_checkpoint(self):
        self.write_windows(160)
        report, told = self.record(self.configure(train_epochs=1000, output_every_epochs=1000), options=("--steps", "30"), code=130)
        self.assertIn("stopped, the same command goes on", told)
        self.assertEqual(report["steps"], 30)
        self.assertTrue(self.newest().name.endswith("30.safetensors"), self.newest())

    def test_the_ceiling_is_measured_with_one_batch_and_nothing_of_it_is_kept(self):
        self.write_windows(160)
        report, _ = self.record(self.configure(train_epochs=10**6, output_every_epochs=10**6, train_log_every=10**6), options=("--ceiling",), code=130)
        self.assertGreater(report["ceiling_ms"], 0)
        self.assertEqual(list((self.folder / "out").glob("step-*")), [])

    def test_the_results_are_the_same_as_without(self):
        self.write_windows(64)
        config = self.configure("{name: lstm, hidden: 16, dropout: 0.3}", train_epochs=3, data_shuffle="true")
        self.train(config)
        losses = self.losses()
        self.record(config, "--anew")
        self.assertEqual(self.losses(), losses)

    def waits_for_our_loader(self, imports):
        (self.folder / "train.py").write_text(imports + LOADING)
        report, _ = self.record("train.py", program=sys.executable)
        self.assertEqual(report["steps"], 200)
        self.assertAlmostEqual(report["samples_per_step"], 8)
        self.assertGreater({cause["id"]: cause["charged_ms"] for cause in report["causes"]}["data-wait"], 0)

    def test_a_program_waits_for_our_loader_as_for_any_other(self):
        self.waits_for_our_loader("import torch, fullwatt")

    def test_also_where_the_loader_imports_torch(self):
        self.waits_for_our_loader("import fullwatt; fullwatt.Loader; import torch")

    def test_a_recorder_that_is_none_ends_nothing(self):
        self.write_windows(16)
        (self.folder / "none.so").write_text("no library")
        for recorder in (self.folder / "none.so", self.folder / "missing.so", "libz.so.1"):
            self.train(self.configure(), "--anew", FULLWATT_RUN=str(self.folder), FULLWATT_RECORDER=str(recorder))
        self.assertEqual(list(self.folder.rglob("spool-*")), [])


if __name__ == "__main__":
    unittest.main()
