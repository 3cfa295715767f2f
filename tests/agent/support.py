"""Runs small training programs under the agent: in a forked child of this process, or in a Python of its own."""

import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import traceback
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PACKAGE_PARENT = os.path.join(ROOT, "python")
SITE = os.path.join(PACKAGE_PARENT, "fullwatt", "site")
RECORDER = os.environ.get("FULLWATT_RECORDER") or os.path.join(ROOT, "build", "dev", "lib", "libfullwatt_recorder.so")
TIME_LIMIT_S = 240
GPU_FILES = ("/dev/nvidiactl", "/dev/dxg")  # the second of Windows' Linux

if PACKAGE_PARENT not in sys.path:
    sys.path.insert(0, PACKAGE_PARENT)

from spool import facts, spools  # noqa: E402

MODEL = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
def loss_of(x, y):
    return ((model(x) - y) ** 2).mean()
"""


class Outcome:
    """What a program left behind."""

    def __init__(self, folder, code, out, err):
        self.folder = folder
        self.code = code
        self.out = out
        self.err = err

    def spools(self):
        return spools(self.folder)

    def spool(self):
        """The spool of the only trainer."""
        trainers = [spool for spool in self.spools() if spool.header.role == 0]
        assert len(trainers) == 1, "%d trainers; stderr: %s" % (len(trainers), self.err)
        return trainers[0]

    def facts(self, kind):
        return [fact for fact in facts(self.folder) if fact["kind"] == kind]

    def fact(self, kind):
        found = self.facts(kind)
        assert len(found) == 1, "%d facts %s; stderr: %s" % (len(found), kind, self.err)
        return found[0]

    def calls(self, name=None):
        """Calls of a fake recorder."""
        found = []
        for path in sorted(glob.glob(os.path.join(self.folder, "calls-*.jsonl"))):
            with open(path) as file:
                found += [json.loads(line) for line in file]
        return [call for call in found if name in (None, call["call"])]


class Case(unittest.TestCase):
    """A test with a scratch folder."""

    def setUp(self):
        self.scratch = tempfile.mkdtemp(prefix="fullwatt-agent-")
        self.addCleanup(shutil.rmtree, self.scratch, True)
        self._runs = 0

    def new_folder(self):
        self._runs += 1
        folder = os.path.join(self.scratch, "run%d" % self._runs)
        os.makedirs(folder)
        return folder

    def write(self, name, source):
        path = os.path.join(self.scratch, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(textwrap.dedent(source))
        return path

    def run_forked(self, source, arguments=(), fake=None, agent=True, environment=None, name="script.py"):
        """Runs a program in a child that shares this process's torch. `fake` are the arguments of a FakeRecorder."""
        if agent and fake is None:
            need_recorder()
        share_imports()
        folder, script = self.new_folder(), self.write(name, source)
        out, err = os.path.join(folder, "out.txt"), os.path.join(folder, "err.txt")
        child = os.fork()
        if child == 0:
            _run_child(folder, script, list(arguments), fake, agent, environment or {}, out, err)
        code = _wait(child)
        return Outcome(folder, code, _read(out), _read(err))

    def run_python(self, arguments, environment=None, agent=True, limit_s=TIME_LIMIT_S):
        """Runs a Python as `fullwatt run` would."""
        folder = self.new_folder()
        variables = dict(os.environ, PYTHONPATH=SITE, FULLWATT_RUN=folder, FULLWATT_RECORDER=RECORDER)
        if not agent:
            for variable in ("PYTHONPATH", "FULLWATT_RUN", "FULLWATT_RECORDER"):
                del variables[variable]
        variables.update(environment or {})
        variables = {name: value for name, value in variables.items() if value is not None}
        done = subprocess.run(
            [sys.executable] + list(arguments),
            cwd=self.scratch,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            timeout=limit_s,
        )
        return Outcome(folder, done.returncode, done.stdout, done.stderr)

    def line_of(self, source, text):
        """The line number of a text in a program."""
        lines = textwrap.dedent(source).split("\n")
        return 1 + next(number for number, line in enumerate(lines) if text in line)


def share_imports():
    """What the first optimiser imports takes two seconds, which children need not spend where this process has torch. But not on a machine with a GPU: whoever asks CUDA
    for that before a fork spoils it for the children, so that not even torch is asked."""
    if "torch" in sys.modules and not any(map(os.path.exists, GPU_FILES)):
        import torch._dynamo  # noqa: F401


def need_recorder():
    if not os.path.exists(RECORDER):
        raise unittest.SkipTest("the recorder is not built: " + RECORDER)


def _run_child(folder, script, arguments, fake, agent, environment, out, err):
    """Never returns."""
    import atexit
    import runpy

    code = 70
    try:
        os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT, 0o644), 1)
        os.dup2(os.open(err, os.O_WRONLY | os.O_CREAT, 0o644), 2)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", buffering=1, closefd=False)
        os.chdir(os.path.dirname(script))
        os.environ.update(environment)
        sys.argv = [script] + arguments
        signal.alarm(TIME_LIMIT_S)
        if agent:
            _begin(folder, fake)
        code = _run_script(runpy, script)
        atexit._run_exitfuncs()
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _begin(folder, fake):
    from fullwatt import entry

    if fake is None:
        entry.begin(folder, RECORDER)
    else:
        from fake_recorder import FakeRecorder

        entry.begin(folder, load_recorder=lambda: FakeRecorder(folder, **fake))


def _run_script(runpy, script):
    try:
        runpy.run_path(script, run_name="__main__")
        return 0
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
        return 1


def _wait(child):
    status = os.waitpid(child, 0)[1]
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _read(path):
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return ""
