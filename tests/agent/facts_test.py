"""What the agent tells about a program: docs/run-folder.md, section Facts."""

import os
import unittest

import torch
import torch._dynamo  # every optimiser imports it: once here instead of in each child
from support import ROOT, Case

PROGRAM = """
import argparse
import json
from pathlib import Path
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--epochs", type=int, default=14)
arguments = parser.parse_args()
with open("train.yaml") as file:
    file.read()
Path("model.json").read_text()
open("notes.txt").close()

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Conv2d(4, 4, 3, bias=False), torch.nn.BatchNorm2d(4))
        self.head = torch.nn.Linear(4, 2)
    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))

model = Net().to(memory_format=torch.channels_last)
loss_function = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.lr)
data = torch.utils.data.TensorDataset(torch.randn(12, 3, 8, 8), torch.zeros(12, dtype=torch.long))
loader = torch.utils.data.DataLoader(data, batch_size=6, shuffle=True, drop_last=True)
for epoch in range(arguments.epochs):
    for x, y in loader:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_function(model(x.contiguous(memory_format=torch.channels_last)), y)
        loss.backward()
        optimizer.step()
open("late.yaml", "w").close()
open("late.yaml").close()
"""


class FactsTest(Case):
    @classmethod
    def setUpClass(cls):
        case = cls("run_once")
        case.setUp()
        cls.addClassCleanup(case.doCleanups)
        for name in ("train.yaml", "model.json", "notes.txt"):
            case.write(name, "")
        cls.outcome = case.run_forked(PROGRAM, arguments=["--lr", "0.5"], fake={}, environment={"OMP_NUM_THREADS": "1"})
        cls.folder = case.scratch

    def run_once(self):
        """Stands for the class: the program runs once for all tests."""

    def site(self, text):
        return {"file": os.path.join(self.folder, "script.py"), "line": self.line_of(PROGRAM, text), "function": "<module>"}

    def assert_fact(self, kind, **fields):
        self.assert_fields(self.outcome.fact(kind), **fields)

    def assert_fields(self, fact, **fields):
        self.assertEqual({name: fact.get(name) for name in fields}, fields)

    def test_the_program_ran_undisturbed(self):
        self.assertEqual((self.outcome.code, self.outcome.out, self.outcome.err), (0, "", ""))

    def test_every_fact_is_documented(self):
        with open(os.path.join(ROOT, "docs", "run-folder.md")) as file:
            documented = {line.split("`")[1] for line in file if line.startswith("| `")}
        from spool import facts

        self.assertLessEqual({fact["kind"] for fact in facts(self.outcome.folder)}, documented)

    def test_process(self):
        fact = self.outcome.fact("process")
        self.assertEqual((fact["role"], fact["rank"], fact["world_size"]), ("trainer", -1, 1))
        self.assertEqual(fact["main"], os.path.join(self.folder, "script.py"))
        self.assertEqual(fact["argv"][1:], ["--lr", "0.5"])
        self.assertEqual(fact["torch"], torch.__version__)
        self.assertTrue(any(torch.__file__.startswith(prefix) for prefix in fact["prefixes"]))

    def test_loader(self):
        made, read = self.outcome.facts("loader")
        self.assertEqual((made["trains"], read["trains"]), (False, True))
        self.assert_fields(
            read, id=0, site=self.site("loader = "), dataset="TensorDataset", dataset_length=12, iterable=False, batch_size=6,
            num_workers=0, pin_memory=False, persistent_workers=False, follows_epochs=False, drop_last=True, shuffle="RandomSampler", batches=2,
            collate="default_collate",
        )  # fmt: skip

    def test_model(self):
        parameters = 3 * 4 * 9 + 4 + 4 * 4 * 9 + 4 * 4 + 4 * 2 + 2
        self.assert_fact(
            "model", **{"class": "Net"}, parameters=parameters, trainable=parameters, bytes=4 * parameters,
            dtypes={"float32": parameters}, devices={"cpu": parameters}, compiled=False, wrapper=None, channels_last=1.0,
            batchnorm_bias=1, training=True,
        )  # fmt: skip
        self.assertEqual(self.outcome.fact("model")["modules"]["Conv2d"], 2)

    def test_input(self):
        self.assert_fact("input", shape=[6, 3, 8, 8], dtype="float32", device="cpu", channels_last=True, contiguous=False, samples=6)

    def test_device_check(self):
        self.assert_fact("device_check", consistent=True, inputs={"cpu": 1})

    def test_optimizer(self):
        self.assert_fact("optimizer", id=0, **{"class": "AdamW"}, site=self.site("optimizer = "), groups=1, lr=0.5, fused=None)

    def test_autocast_is_told_once_for_its_place(self):
        self.assert_fact("autocast", device="cpu", dtype="bfloat16", enabled=True, site=self.site("with torch.autocast"))

    def test_arguments(self):
        self.assert_fact(
            "argument", parser=self.site("parser.parse_args"), values={"lr": 0.5, "epochs": 14}, defaults={"lr": 0.1, "epochs": 14}, given=["lr"]
        )  # fmt: skip

    def test_configuration_files_of_the_user_before_the_training(self):
        paths = [(os.path.basename(fact["path"]), fact["site"]["line"]) for fact in self.outcome.facts("config_file")]
        self.assertEqual(paths, [("train.yaml", self.line_of(PROGRAM, "train.yaml")), ("model.json", self.line_of(PROGRAM, "model.json"))])

    def test_settings_at_the_first_step_and_at_the_end(self):
        self.assertEqual([fact["when"] for fact in self.outcome.facts("settings")], ["first-step", "end"])
        values = self.outcome.facts("settings")[0]["values"]
        self.assertEqual(values["matmul.precision"], "highest")
        self.assertEqual(values["threads"], torch.get_num_threads())
        for name in ("cudnn.benchmark", "sdp.flash", "deterministic_algorithms", "anomaly_detection", "gc.threshold", "default_dtype"):
            self.assertIn(name, values)

    def test_environment(self):
        self.assertEqual(self.outcome.fact("environment")["values"]["OMP_NUM_THREADS"], "1")

    def test_epochs(self):
        epochs = self.outcome.facts("epoch")
        self.assertEqual([(fact["loader"], fact["batches"], fact["number"]) for fact in epochs], [(0, 2, n) for n in range(1, 15)])

    def test_the_agents_own_cost(self):
        self.assertEqual((self.outcome.fact("agent")["errors"], self.outcome.fact("agent")["off"]), (0, None))
        self.assertGreater(self.outcome.calls("cost")[0]["nanoseconds"], 0)


if __name__ == "__main__":
    unittest.main()
