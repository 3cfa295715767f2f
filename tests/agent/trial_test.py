"""A trial of `tune`: it ends where it should, without the program's own end, and knows every loss."""

import inspect
import json
import os
import pathlib
import random
import struct
import unittest

import torch

from support import MODEL, Case

from fullwatt.fixes import optimizers, turns

TRAIN = """
import atexit, random
atexit.register(lambda: print("saved at exit"))
try:
    for step in range(1000):
        x = torch.randn(4, 8)
        optimizer.zero_grad()
        loss = loss_of(x, torch.ones(4, 1))
        loss.backward()
        optimizer.step()
        print("%.17g" % loss.item(), random.random())
finally:
    print("saved in finally")
"""


class TrialTest(Case):
    def trial(self, steps, source=MODEL + TRAIN, **wanted):
        environment = {"FULLWATT_TRIAL": json.dumps(wanted), "FULLWATT_STEPS": str(steps), "FULLWATT_WINDOWS": "off"}
        outcome = self.run_forked(source, environment=environment)
        self.assertEqual(outcome.code, 0, outcome.err)
        return outcome

    def test_it_ends_without_the_programs_own_end(self):
        outcome = self.trial(25)
        self.assertEqual(len(outcome.out.strip().split("\n")), 24)  # the 25th step ends inside optimizer.step()
        self.assertNotIn("saved", outcome.out)
        spool = outcome.spool()
        self.assertEqual(spool.header.step_count, 25)

    def test_the_programs_own_files_are_told(self):
        self.write("parts.py", "")
        outcome = self.trial(12, "import sys\nsys.path.insert(0, %r)\nimport parts\n" % self.scratch + MODEL + TRAIN)
        files = [file for fact in outcome.facts("program") for file in fact["files"]]
        self.assertIn(os.path.join(self.scratch, "parts.py"), files)
        self.assertFalse([file for file in files if "site-packages" in file or os.sep + "fullwatt" + os.sep in file])

    def test_every_loss_is_known(self):
        outcome = self.trial(30, losses=True)
        told = outcome.spool().of_kind("loss")
        printed = [float(line.split()[0]) for line in outcome.out.strip().split("\n")]
        self.assertEqual([record.b for record in told], list(range(1, 31)))
        self.assertEqual([value_of(record.a) for record in told][:29], printed)

    def test_seeds_move_together(self):
        first, again, other = self.trial(12, seed_offset=0), self.trial(12, seed_offset=0), self.trial(12, seed_offset=1)
        self.assertEqual(first.out, again.out)
        self.assertNotEqual(first.out, other.out)
        unseeded = MODEL.replace("torch.manual_seed(0)", "") + TRAIN
        self.assertEqual(self.trial(12, unseeded, seed_offset=3).out, self.trial(12, unseeded, seed_offset=3).out)

    GENERATORS = """
import numpy, random, torch
print([torch.rand(1, generator=torch.Generator().manual_seed(1)).item(), numpy.random.default_rng(2).random(), numpy.random.RandomState(3).rand(), random.Random(4).random()])
split = torch.utils.data.random_split(range(64), [40, 24], torch.Generator().manual_seed(5))[0]
print(sorted(split))
model = torch.nn.Linear(1, 1)
torch.nn.init.zeros_(model.weight), torch.nn.init.zeros_(model.bias)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
generator = torch.Generator()
given = generator.manual_seed(6)
loader = torch.utils.data.DataLoader(split, batch_size=8, %s)
for epoch in range(4):
    SEED
    for x in loader:
        print(x.tolist())
        model(x.float()[:, None]).sum().backward()
        optimizer.step()
"""

    def test_generators_of_the_programs_own_give_the_same_samples_in_another_order(self):
        for sampler in ("shuffle=True, generator=given", "sampler=torch.utils.data.RandomSampler(split, generator=given)",
                        "sampler=torch.utils.data.DistributedSampler(split, num_replicas=1, rank=0, seed=7)"):  # fmt: skip
            for seed in ("pass", "generator.manual_seed(epoch)"):
                source = (self.GENERATORS % sampler).replace("SEED", seed)
                plain, first, again, other = (self.trial(20, source, **wanted).out.split("\n") for wanted in ({}, {"seed_offset": 1}, {"seed_offset": 1}, {"seed_offset": 2}))
                self.assertEqual(first, again)
                self.assertEqual(plain, self.trial(20, source, seed_offset=0).out.split("\n"), "the first of all seeds is the program's own")
                for one, other_order in ((plain, first), (first, other), (plain, other)):
                    self.assertEqual(one[:2], other_order[:2], "what samples there are")
                    for epoch in range(3):
                        self.assertNotEqual(one[2 + 5 * epoch:7 + 5 * epoch], other_order[2 + 5 * epoch:7 + 5 * epoch])
                        self.assertEqual(sorted(sum(map(json.loads, one[2 + 5 * epoch:7 + 5 * epoch]), [])), json.loads(one[1]))

    def test_a_generator_without_a_seed_is_the_same_in_both_runs_of_a_pair(self):
        source = MODEL + "import numpy\nprint(numpy.random.default_rng().random(2).tolist() + numpy.random.default_rng().random(1).tolist())\n" + TRAIN
        first, again, other = (self.trial(12, source, seed_offset=offset).out.split("\n")[0] for offset in (1, 1, 2))
        self.assertEqual(first, again)
        self.assertEqual(len(set(json.loads(first) + json.loads(other))), 6)

    def test_without_a_trial_the_program_ends_in_order(self):
        outcome = self.run_forked(MODEL + TRAIN, environment={"FULLWATT_STEPS": "25", "FULLWATT_WINDOWS": "off"})
        self.assertIn("saved in finally", outcome.out)
        self.assertIn("saved at exit", outcome.out)


class DiversionTest(Case):
    """Where there is no sandbox: what Python writes goes elsewhere, and the program does not notice."""

    def diverted(self, source, **environment):
        """What a program prints that begins in its own folder; afterwards that folder is as it was."""
        mine, there = os.path.join(self.scratch, "mine"), os.path.join(self.scratch, "files")
        for folder in ("logs", "old"):
            os.makedirs(os.path.join(mine, folder))
        os.makedirs(there)
        for name in ("log.txt", "old.txt", "logs/1.txt", "old/a", "old/b"):
            with open(os.path.join(mine, name), "w") as file:
                file.write("old\n")
        os.symlink("log.txt", os.path.join(mine, "latest"))
        before = self.tree(mine)
        outcome = self.run_forked(MODEL + "import os\nos.chdir(%r)\n" % mine + source, environment=dict({"FULLWATT_DIVERSION": there, "TMPDIR": there}, **environment))
        self.assertEqual(outcome.code, 0, outcome.err)
        self.assertEqual(self.tree(mine), before)
        return outcome.out

    @staticmethod
    def tree(folder):
        """Every file with what is in it and when it changed."""
        paths = [os.path.join(place, name) for place, folders, files in os.walk(folder) for name in folders + files]
        return sorted((path, os.lstat(path).st_mtime_ns, os.lstat(path).st_mode, "" if os.path.isdir(path) else pathlib.Path(path).read_text()) for path in paths)

    def test_a_program_finds_what_it_wrote_and_its_files_stay(self):
        out = self.diverted("""
import pathlib, shutil, tempfile
os.makedirs("out/deep", exist_ok=True)
os.makedirs("out/deep", exist_ok=True)
with open("log.txt", "a") as file:
    file.write("new\\n")
pathlib.Path("out/deep/a.txt").write_text("a")
torch.save(model.state_dict(), pathlib.Path("out") / "model.tmp")
os.replace("out/model.tmp", "out/model.pt")
shutil.copy("out/deep/a.txt", "out/b.txt")
os.remove("old.txt")
with tempfile.TemporaryDirectory() as folder:
    open(os.path.join(folder, "x"), "w").close()
print(os.path.exists(folder))
with open(os.open("by_descriptor", os.O_CREAT | os.O_WRONLY), "w") as file:
    file.write("x")
print(open("log.txt").read().split(), sorted(os.listdir("out")), len(torch.load("out/model.pt")), os.path.exists("out/model.tmp"), open("by_descriptor").read())
try:
    os.mkdir("out")
except FileExistsError:
    print("there already")
""")
        self.assertEqual(out, "False\n['old', 'new'] ['b.txt', 'deep', 'model.pt'] 4 False x\nthere already\n")

    def test_a_folder_shows_what_was_there_and_what_is_new(self):
        out = self.diverted("""
import glob, pathlib
pathlib.Path("logs/2.txt").touch()
os.chmod("logs/2.txt", 0o600)
os.chmod("logs/1.txt", 0o600)
os.truncate("logs/1.txt", 1)
print(sorted(os.listdir("logs")), sorted(glob.glob("logs/*")), [sorted(files) for _, _, files in os.walk("logs")], open("logs/1.txt").read())
print(os.access("logs/2.txt", os.R_OK), sorted(path.name for path in pathlib.Path("logs").iterdir()))
""")
        self.assertEqual(out, "['1.txt', '2.txt'] ['logs/1.txt', 'logs/2.txt'] [['1.txt', '2.txt']] o\nTrue ['1.txt', '2.txt']\n")

    def test_what_is_removed_is_not_found_and_may_come_again(self):
        out = self.diverted("""
import shutil
shutil.rmtree("old")
print(os.path.exists("old"), "old" in os.listdir("."))
os.makedirs("old/new")
print(os.listdir("old"))
os.rename("log.txt", "old/log.txt")
print(os.path.exists("log.txt"), sorted(os.listdir("old")), open("old/log.txt").read())
os.remove("latest")
os.symlink("old.txt", "latest")
print(os.readlink("latest"), os.path.islink("latest"))
os.link("logs/1.txt", "linked")
open("linked", "a").write("more")
print(open("linked").read().split(), open("logs/1.txt").read().split())
open("old.txt", "x") if not os.path.exists("old.txt") else None
os.remove("old.txt")
print(open("old.txt", "a").tell())
for path, call in (("logs", os.rmdir), ("nowhere", os.remove)):
    try:
        call(path)
    except OSError as error:
        print(type(error).__name__, error.errno)
os.chdir("old/new")
open("here", "w").close()
print(os.getcwd().endswith("mine/old/new"), open("../../logs/1.txt").read())
""")
        self.assertEqual(out, "False False\n['new']\nFalse ['log.txt', 'new'] old\n\nold.txt True\n['old', 'more'] ['old']\n0\nOSError 39\nFileNotFoundError 2\nTrue old\n\n")

    def test_what_lies_in_open_folders_is_written_and_removed_for_real(self):
        """Where a compiler's processes work together with Python; temporary files have another name for their folder."""
        there = self.new_folder()
        name = "/proc/%d/fd/%d" % (os.getpid(), os.open(there, os.O_PATH))
        out = self.diverted("""
import shutil, subprocess, tempfile
tempfile.tempdir = None
folder = tempfile.mkdtemp()
open(os.path.join(folder, "code.c"), "w").write("x")
subprocess.run(["cp", os.path.join(folder, "code.c"), THERE])
shutil.rmtree(folder)
print(os.listdir(THERE), open(os.path.join(THERE, "code.c")).read(), os.path.exists(folder))
""".replace("THERE", repr(there)), TMPDIR=name, FULLWATT_UNDIVERTED=there)
        self.assertEqual(out, "['code.c'] x False\n")
        self.assertEqual(os.listdir(there), ["code.c"])

    def test_writers_that_pass_python_by_are_diverted_where_they_are_known(self):
        self.write("lib/safetensors/__init__.py", "")
        self.write("lib/safetensors/torch.py", """
            def save_file(tensors, filename, metadata=None):
                print("tensors", filename.split("files")[-1].endswith("/mine/model.safetensors"), "/files/" in filename)
        """)
        out = self.diverted("""
import sys
scripted = torch.jit.script(torch.nn.Linear(2, 1))
torch.jit.save(scripted, "jit.pt")
scripted.save("again.pt")
print(type(torch.jit.load("jit.pt")).__name__, os.path.exists("again.pt"))
sys.path.insert(0, %r)
from safetensors.torch import save_file
save_file({}, "model.safetensors")
""" % os.path.join(self.scratch, "lib"))
        self.assertEqual(out, "RecursiveScriptModule True\ntensors True True\n")


class LoggersTest(Case):
    """Experiment loggers, here such as only tell how they were called."""

    def test_they_stay_offline_whatever_the_program_asks_for(self):
        for name, function in (("wandb", "init"), ("swanlab", "init"), ("neptune", "init_run"), ("comet_ml", "start")):
            self.write(name + ".py", "def %s(**kwargs):\n    print(%r, sorted(kwargs.items()))\n" % (function, name))
        self.write("mlflow.py", """
            def set_tracking_uri(uri):
                print("mlflow at", uri)
            class MlflowClient:
                def __init__(self, tracking_uri=None, registry_uri=None):
                    print("client of", tracking_uri)
        """)
        source = """
            import sys
            sys.path.insert(0, %r)
            import wandb, swanlab, neptune, comet_ml, mlflow
            wandb.init(project="mine", mode="online", dir="/here")
            wandb.init(mode="disabled")
            swanlab.init()
            neptune.init_run(mode="async")
            comet_ml.start(online=True)
            mlflow.set_tracking_uri("http://there")
            mlflow.MlflowClient("http://there")
        """ % self.scratch
        trial = {"FULLWATT_TRIAL": "{}"}
        told = self.run_forked(source, environment=trial)
        offline = "[('mode', 'offline')]"
        self.assertEqual(told.out.split("\n")[1:], ["wandb [('mode', 'disabled')]", "swanlab " + offline, "neptune " + offline, "comet_ml [('online', False)]", "client of None", ""], told.err)
        self.assertEqual(told.out.split("\n")[0], "wandb [('dir', '/here'), ('mode', 'offline'), ('project', 'mine')]")
        diverted = self.run_forked(source, environment=dict(trial, FULLWATT_DIVERSION=self.new_folder()))
        self.assertEqual(diverted.out.split("\n")[0], "wandb [('mode', 'offline'), ('project', 'mine')]", "its own program would write there")
        self.assertIn("mlflow at http://there", self.run_forked(source).out, "only a trial is offline")


class PairsTest(unittest.TestCase):
    """Whether pairs tell that a fix pays."""

    MOST_PAIRS = 12

    def verdicts(self, speedup, noise, outliers=0.0, count=2000):
        chance = random.Random(1)

        def half():
            return chance.lognormvariate(0, noise) * (3 if chance.random() < outliers else 1)

        pairs, kept = 0, 0
        for _ in range(count):
            ratios = []
            while len(ratios) < self.MOST_PAIRS and not turns.is_decided(ratios):
                ratios.append(speedup * half() / half())
            pairs += len(ratios)
            kept += turns.pays(ratios)
        return kept / count, pairs / count

    def test_what_does_nothing_is_seldom_kept(self):
        for noise in (0.002, 0.02, 0.1):
            kept, pairs = self.verdicts(1.0, noise)
            self.assertLess(kept, 0.07)
            self.assertLess(pairs, 8)

    def test_what_pays_is_kept_also_where_some_steps_are_long(self):
        self.assertGreater(self.verdicts(1.05, 0.015)[0], 0.95)
        self.assertGreater(self.verdicts(1.3, 0.05, outliers=0.03)[0], 0.95)

    def test_what_is_far_faster_is_known_soon(self):
        kept, pairs = self.verdicts(2.0, 0.05)
        self.assertEqual((kept, pairs), (1.0, 3.0))

    def test_what_is_faster_by_less_than_it_is_worth_is_not_kept(self):
        self.assertEqual(self.verdicts(1.004, 0.0005)[0], 0)


class TurnsCase(Case):
    """Fixes that are turned on and off within one trial."""

    def planned(self, fixes, source, steps, wanted):
        plan = os.path.join(self.scratch, "plan.json")
        with open(plan, "w") as file:
            json.dump({"fixes": fixes}, file)
        environment = {"FULLWATT_TRIAL": json.dumps(wanted), "FULLWATT_PLAN": plan, "FULLWATT_STEPS": str(steps), "FULLWATT_WINDOWS": "off"}
        outcome = self.run_forked(MODEL + source, environment=environment)
        self.assertEqual(outcome.code, 0, outcome.err)
        return outcome

    def turns(self, fixes, source, pairs=3, most_seconds=600):
        wanted = {"fixes": [fix["id"] for fix in fixes], "pairs": pairs, "seconds": 0.05, "most_seconds": most_seconds}
        outcome = self.planned(fixes, source, 2000, {"turns": wanted})
        return outcome, {fact["id"]: fact for fact in outcome.facts("turn")}


class TurnsTest(TurnsCase):
    SOURCE = """
import time
torch.set_num_threads(2)
model_call = model.forward
def slow_with_two_threads(x):
    time.sleep(0.02 if torch.get_num_threads() == 2 else 0.005)
    return model_call(x)
model.forward = slow_with_two_threads
for step in range(3000):
    optimizer.zero_grad()
    loss_of(torch.randn(4, 8), torch.ones(4, 1)).backward()
    optimizer.step()
print("ran to its end")
"""

    def test_what_pays_is_kept_and_the_next_is_measured_on_top_of_it(self):
        outcome, told = self.turns([{"id": "threads", "count": 1}, {"id": "tf32"}], self.SOURCE)
        self.assertNotIn("ran to its end", outcome.out)
        threads, tf32 = told["threads"], told["tf32"]
        self.assertTrue(threads["kept"])
        self.assertEqual((len(threads["with_ms"]), len(threads["without_ms"])), (3, 3))
        self.assertGreater(min(threads["without_ms"]), max(threads["with_ms"]))
        self.assertLess(max(tf32["without_ms"]), min(threads["without_ms"]))
        self.assertEqual(tf32["state"], "measured")

    @unittest.skipUnless(hasattr(torch.nn.Module, "compile"), "this torch has no place for it")
    def test_models_and_optimisers_take_turns(self):
        source = """
seen = []
model.register_forward_hook(lambda module, args, result: seen.append(str(result.dtype)))
for step in range(3000):
    optimizer.zero_grad()
    loss_of(torch.randn(4, 8), torch.ones(4, 1)).backward()
    optimizer.step()
    print(seen[-1], optimizer.param_groups[0].get("fused"), flush=True)
"""
        outcome, told = self.turns([{"id": "bf16"}, {"id": "fused-optimizer"}], source, pairs=2)
        self.assertEqual(set(told), {"bf16", "fused-optimizer"})
        lines = outcome.out.strip().split("\n")
        kinds = [line.split()[0] for line in lines]
        self.assertIn("torch.bfloat16", kinds)
        if "fused" in inspect.signature(torch.optim.SGD).parameters:  # else the trial ends with the first fix
            self.assertIn("torch.float32", kinds[kinds.index("torch.bfloat16"):])
            self.assertIn("True", {line.split()[1] for line in lines})

    def test_what_optimisers_remember_lies_as_its_parameters_do(self):
        source = """
model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Conv2d(4, 2, 1), torch.nn.Flatten(), torch.nn.Linear(72, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(3000):
    optimizer.zero_grad(set_to_none=False)
    model(torch.randn(2, 3, 8, 8)).sum().backward()
    optimizer.step()
    weight = model[0].weight
    alike = all(value.stride() == p.stride() for p in model.parameters() for value in [p.grad, *optimizer.state[p].values()] if value.shape == p.shape)
    print(weight.is_contiguous(), alike, flush=True)
"""
        fixes = [{"id": "channels-last"}] + [{"id": "fused-optimizer"}] * ("cpu" in optimizers.supported(torch))
        outcome, told = self.turns(fixes, source, pairs=2)
        self.assertTrue(all(fact["state"] == "measured" for fact in told.values()), told)
        lines = set(outcome.out.strip().split("\n"))
        self.assertEqual(lines, {"True True", "False True"})

    def test_a_program_that_ends_too_soon_for_its_first_fix_tells_what_it_measured(self):
        undecided = "import fullwatt.fixes.turns\nfullwatt.fixes.turns.is_decided = lambda ratios: False\n"
        for steps, state in ((600, "measured"), (40, "begun")):
            outcome, told = self.turns([{"id": "threads", "count": 1}], undecided + self.SOURCE.replace("range(3000)", "range(%d)" % steps).replace("0.0", "0.00"), pairs=1000)
            self.assertIn("ran to its end", outcome.out)
            self.assertEqual(told["threads"]["state"], state)

    @unittest.skipUnless(hasattr(torch.backends.cuda.matmul, "fp32_precision"), "this torch has no such name for it")
    def test_a_setting_is_turned_off_to_the_very_value_that_it_had(self):
        source = self.SOURCE.replace("    optimizer.step()\n", "    optimizer.step()\n    print(torch.backends.cuda.matmul.fp32_precision, flush=True)\n")
        never = "import fullwatt.fixes.turns\nfullwatt.fixes.turns.pays = lambda ratios: False\n"
        outcome, _ = self.turns([{"id": "tf32"}, {"id": "threads", "count": 1}], never + source, pairs=1)
        values = outcome.out.split()
        self.assertEqual(values[0], values[-1])
        self.assertIn("tf32", values)

    def test_no_turn_is_taken_when_the_time_is_over(self):
        outcome, told = self.turns([{"id": "threads", "count": 1}, {"id": "tf32"}], self.SOURCE, pairs=1000, most_seconds=0)
        self.assertNotIn("ran to its end", outcome.out)
        self.assertEqual(told, {})

    def test_what_is_undecided_when_the_time_is_over_is_not_told(self):
        undecided = "import fullwatt.fixes.turns\nfullwatt.fixes.turns.is_decided = lambda ratios: False\n"
        late = "fullwatt.fixes.turns.Turns._is_late = lambda turns: turns._under_way is not None\n"
        outcome, told = self.turns([{"id": "threads", "count": 1}, {"id": "tf32"}], undecided + late + self.SOURCE, pairs=1000)
        self.assertNotIn("ran to its end", outcome.out)
        self.assertEqual({name: fact["state"] for name, fact in told.items()}, {"threads": "begun"})

    def test_gradients_take_turns(self):
        source = """
for step in range(3000):
    optimizer.zero_grad(set_to_none=False)
    print(model[0].weight.grad is None, flush=True)
    loss_of(torch.randn(4, 8), torch.ones(4, 1)).backward()
    optimizer.step()
"""
        outcome, told = self.turns([{"id": "gradients-to-none"}], source, pairs=2)
        gradients = told["gradients-to-none"]
        self.assertEqual((gradients["state"], len(gradients["with_ms"]), len(gradients["without_ms"])), ("measured", 2, 2))
        let_go = outcome.out.split()[1:]
        first = let_go.index("True")
        self.assertIn("False", let_go[:first])
        self.assertIn("False", let_go[first:], "it is turned off again")

    def test_a_start_for_a_fix_that_is_refused_is_over_soon(self):
        fixes = [{"id": "loader-workers", "count": 2}, {"id": "threads", "count": 1}]
        source = """
class Numbers(torch.utils.data.IterableDataset):
    def __iter__(self): return (torch.ones(8) for _ in range(4000))
for x in torch.utils.data.DataLoader(Numbers(), batch_size=4):
    optimizer.zero_grad()
    loss_of(x, torch.ones(4, 1)).backward()
    optimizer.step()
"""
        for tries, is_over in (("loader-workers", True), ("threads", False)):
            steps = self.planned(fixes, source, 60, {"tries": tries}).spool().header.step_count
            self.assertLess(steps, 40) if is_over else self.assertEqual(steps, 60)

    def test_what_cannot_be_applied_is_passed_over(self):
        outcome, told = self.turns([{"id": "channels-last"}, {"id": "threads", "count": 1}], self.SOURCE)
        self.assertEqual(told["channels-last"]["state"], "begun")
        self.assertTrue(told["threads"]["kept"])
        refused = [fact for fact in outcome.facts("fix") if fact["id"] == "channels-last"][-1]
        self.assertEqual(refused["state"], "refused")


def value_of(bits):
    return struct.unpack("<d", struct.pack("<Q", bits))[0]


if __name__ == "__main__":
    unittest.main()
