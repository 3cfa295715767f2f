"""How the agent gets into a program: a Python of its own each time, as `fullwatt run` starts it."""

import os
import unittest

from support import PACKAGE_PARENT, SITE, Case, need_recorder

TRAINING = """
import argparse, sys
import torch
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 48
    def __getitem__(self, i):
        return torch.full((8,), float(i)), torch.zeros(1)
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=0)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    loader = torch.utils.data.DataLoader(Data(), batch_size=4, num_workers=arguments.workers,
                                         multiprocessing_context="spawn" if arguments.workers else None)
    for x, y in loader:
        loss = (model(x) - y).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(loss.item().hex())
if __name__ == "__main__":
    main()
"""


class EntryTest(Case):
    def test_nothing_happens_without_a_run(self):
        program = "import sys; print('fullwatt' in sys.modules, [p for p in sys.path if p.startswith(%r)])" % PACKAGE_PARENT
        outcome = self.run_python(["-c", program], {"FULLWATT_RUN": None})
        self.assertEqual((outcome.out, outcome.err), ("False []\n", ""))

    def test_a_program_without_torch_leaves_nothing(self):
        outcome = self.run_python(["-c", "import argparse, sys; argparse.ArgumentParser().parse_args([]); print('torch' in sys.modules)"])
        self.assertEqual((outcome.code, outcome.out, outcome.err, os.listdir(outcome.folder)), (0, "False\n", "", []))

    def test_the_program_sees_its_own_search_path(self):
        script = "import sys; print(sys.path, sys.argv, __name__)"
        watched, alone = self.run_python(["-c", script, "x"]), self.run_python(["-c", script, "x"], agent=False)
        self.assertEqual(watched.out, alone.out)

    def test_the_users_own_sitecustomize_still_runs(self):
        self.write("mine/sitecustomize.py", "marker = 'mine'\n")
        path = os.pathsep.join([SITE, os.path.join(self.scratch, "mine")])
        outcome = self.run_python(["-c", "import sitecustomize, sys; print(sitecustomize.marker, 'fullwatt' in sys.modules)"],
                                  {"PYTHONPATH": path})
        self.assertEqual((outcome.out, outcome.err), ("mine True\n", ""))

    def test_the_users_own_sitecustomize_may_fail_as_without_us(self):
        self.write("mine/sitecustomize.py", "raise RuntimeError('mine')\n")
        mine = os.path.join(self.scratch, "mine")
        watched = self.run_python(["-c", "print(1)"], {"PYTHONPATH": os.pathsep.join([SITE, mine])})
        alone = self.run_python(["-c", "print(1)"], {"PYTHONPATH": mine, "FULLWATT_RUN": None})
        self.assertEqual((watched.out, watched.err), (alone.out, alone.err))

    def test_a_program_that_closed_its_stderr_starts(self):
        outcome = self.run_python(["-c", "import os; os.close(2); print('ran')"])
        self.assertEqual((outcome.code, outcome.out), (0, "ran\n"))

    def test_a_module_with_spawned_workers_is_recorded_with_them(self):
        need_recorder()
        self.write("package/__init__.py", "")
        self.write("package/train.py", TRAINING)
        outcome = self.run_python(["-m", "package.train", "--workers", "2"])
        self.assertEqual((outcome.code, outcome.err), (0, ""))
        self.assertEqual((outcome.spool().header.step_count, outcome.spool().header.samples_total), (12, 48))
        self.assertEqual([spool.header.role for spool in outcome.spools()], [0, 1, 1])
        self.assertEqual(sum(len(spool.of_kind("fetch")) for spool in outcome.spools()), 12)
        self.assertEqual(outcome.facts("loader")[-1]["site"]["file"], os.path.join(self.scratch, "package", "train.py"))
        self.assertEqual(outcome.fact("argument")["given"], ["workers"])
        self.assertEqual([name for name in os.listdir(outcome.folder) if name.startswith("stacks")], [])

    def test_a_recorder_that_cannot_be_loaded_costs_one_line(self):
        script = self.write("train.py", TRAINING)
        outcome = self.run_python([script], {"FULLWATT_RECORDER": os.path.join(self.scratch, "none.so")})
        self.assertEqual(outcome.code, 0, outcome.err)
        self.assertRegex(outcome.err, r"^fullwatt: [^\n]*none.so[^\n]*; the training goes on\n$")
        self.assertRegex(outcome.out, "0x")

    def test_both_processes_of_torchrun_are_recorded_and_the_launcher_is_not(self):
        need_recorder()
        script = self.write("train.py", DISTRIBUTED)
        outcome = self.run_python(["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", script])
        self.assertEqual(outcome.code, 0, outcome.err)
        self.assertNotIn("fullwatt:", outcome.err)
        found = sorted((spool.header.rank, spool.header.role, spool.header.step_count) for spool in outcome.spools())
        self.assertEqual(found, [(0, 0, 12), (1, 0, 12)])
        facts = outcome.facts("distributed")
        self.assertEqual([(fact["backend"], fact["world_size"]) for fact in facts], [("gloo", 2)] * 2)
        self.assertEqual({fact["wrapper"] for fact in outcome.facts("model")}, {"DistributedDataParallel"})
        self.assertEqual({(fact["local_rank"], fact["world_size"]) for fact in outcome.facts("process")}, {(0, 2), (1, 2)})

    def test_processes_of_torchrun_end_at_the_same_step_also_where_a_ceiling_would_follow(self):
        need_recorder()
        script = self.write("train.py", DISTRIBUTED)
        environment = {"FULLWATT_STEPS": "5", "FULLWATT_CEILING": "1", "FULLWATT_WINDOWS": "off"}
        outcome = self.run_python(["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", script], environment)
        self.assertEqual(outcome.code, 0, outcome.err)
        self.assertEqual([spool.header.step_count for spool in outcome.spools()], [5, 5])


DISTRIBUTED = """
import torch
torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(12):
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
torch.distributed.destroy_process_group()
"""


class NotebookTest(Case):
    def test_start_and_report_work_without_the_command(self):
        need_recorder()
        program = self.write("fullwatt-fake", '#!/bin/sh\necho "report of $2"\n')
        os.chmod(program, 0o755)
        source = """
import torch, fullwatt
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
folder = fullwatt.start()
assert fullwatt.start() == folder
for i in range(12):
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
fullwatt.report()
"""
        variables = {"PYTHONPATH": PACKAGE_PARENT, "FULLWATT_RUN": None, "FULLWATT_PROGRAM": program}
        outcome = self.run_python(["-c", source], variables)
        self.assertEqual((outcome.code, outcome.err), (0, ""))
        runs = os.path.join(self.scratch, ".fullwatt", "runs")
        outcome.folder = os.path.join(runs, os.listdir(runs)[0])
        self.assertEqual(outcome.out, "report of %s\n" % outcome.folder)
        self.assertEqual((outcome.spool().header.step_count, outcome.spool().header.samples_total), (12, 22))
        self.assertTrue(os.path.exists(os.path.join(outcome.folder, "run.json")))


if __name__ == "__main__":
    unittest.main()
