"""A trial of `tune`: it ends where it should, without the program's own end, and knows every loss."""

import json
import os
import pathlib
import struct
import unittest

import torch  # noqa: F401  (children share it)

from support import MODEL, Case

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


def value_of(bits):
    return struct.unpack("<d", struct.pack("<Q", bits))[0]


if __name__ == "__main__":
    unittest.main()
