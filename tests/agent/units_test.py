"""The parts of the agent that need no torch."""

import argparse
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import unittest
import unittest.mock

from support import PACKAGE_PARENT, Case

from fullwatt import arguments, facts, imports, measure, patches, sampler, sites
from fullwatt.hooks import cached_batches


class FactsTest(Case):
    def test_everything_becomes_plain_json(self):
        class Odd:
            def __str__(self):
                raise ValueError

        values = {"nan": float("nan"), "inf": -float("inf"), "odd": Odd(), "text": "\udcff" + "x" * 9999, 3: (1, 2), "big": 1 << 80}
        text = json.dumps(facts.clean(values), allow_nan=False)
        read = json.loads(text)
        self.assertIsNone(read["nan"])
        self.assertIsNone(read["inf"])
        self.assertEqual(read["odd"], "Odd")
        self.assertEqual(read["3"], [1, 2])
        self.assertLess(len(read["text"]), 1000)

    def test_facts_wait_for_the_file_and_keep_their_order(self):
        file = facts.Facts(self.scratch)
        file.add("first", a=1)
        self.assertEqual(os.listdir(self.scratch), [])
        file.open(7)
        file.add("second", b=2)
        with open(os.path.join(self.scratch, "facts-7.jsonl")) as lines:
            self.assertEqual([json.loads(line)["kind"] for line in lines], ["first", "second"])

    def test_a_full_disk_turns_facts_off_without_a_word(self):
        file = facts.Facts(self.scratch)
        file._file = os.open("/dev/full", os.O_WRONLY)
        file.add("lost")
        file.add("lost")
        self.assertTrue(file._off)

    def test_a_folder_that_is_gone_turns_facts_off(self):
        file = facts.Facts(os.path.join(self.scratch, "none"))
        file.open(7)
        file.add("lost")

    def test_one_kind_cannot_fill_the_disk(self):
        file = facts.Facts(self.scratch)
        file.open(7)
        for i in range(1000):
            file.add("epoch", number=i)
        with open(os.path.join(self.scratch, "facts-7.jsonl")) as lines:
            self.assertEqual(len(list(lines)), facts.KIND_LIMIT)


class PatchesTest(unittest.TestCase):
    def test_groups_are_restored_on_their_own(self):
        class Owner:
            def one(self):
                return 1

            def two(self):
                return 2

        one, two = Owner.one, Owner.two
        done = patches.Patches()
        done.replace(Owner, "one", lambda original: lambda self: 10 + original(self), "early")
        done.replace(Owner, "two", lambda original: lambda self: 20 + original(self))
        self.assertEqual((Owner().one(), Owner().two()), (11, 22))
        done.restore("early")
        self.assertEqual((Owner().one(), Owner().two()), (1, 22))
        done.restore()
        self.assertIs(Owner.one, one)
        self.assertIs(Owner.two, two)

    def test_an_inherited_function_is_inherited_again(self):
        class Base:
            def name(self):
                return "base"

        class Derived(Base):
            pass

        done = patches.Patches()
        done.replace(Derived, "name", lambda original: lambda self: "patched")
        self.assertEqual((Derived().name(), Base().name()), ("patched", "base"))
        done.restore()
        self.assertNotIn("name", vars(Derived))

    def test_what_somebody_else_replaced_since_stays(self):
        class Owner:
            def name(self):
                return "own"

        done = patches.Patches()
        done.replace(Owner, "name", lambda original: lambda self: "ours")
        theirs = lambda self: "theirs"  # noqa: E731
        Owner.name = theirs
        done.restore()
        self.assertIs(Owner.name, theirs)

    def test_a_name_that_is_not_there_is_left_alone(self):
        class Owner:
            pass

        self.assertIsNone(patches.Patches().replace(Owner, "missing", lambda original: None))


class ImportsTest(Case):
    def test_a_module_is_reported_when_it_is_complete(self):
        self.write("slow_module.py", "a = 1\nb = 2\n")
        sys.path.insert(0, self.scratch)
        self.addCleanup(sys.path.remove, self.scratch)
        watch, order = imports.ImportWatch(), []
        watch.when_imported("slow_module", lambda module: order.append(module.b), before=lambda: order.append("before"))
        self.assertTrue(importlib.util.find_spec("slow_module"))
        module = importlib.import_module("slow_module")
        self.addCleanup(sys.modules.pop, "slow_module")
        self.assertEqual(order, ["before", 2])
        self.assertNotIn(watch, sys.meta_path)
        self.assertNotIn("exec_module", vars(module.__spec__.loader))

    def test_a_module_that_fails_to_import_fails_as_without_us(self):
        self.write("broken_module.py", "raise OSError('mine')\n")
        sys.path.insert(0, self.scratch)
        self.addCleanup(sys.path.remove, self.scratch)
        watch, order = imports.ImportWatch(), []
        watch.when_imported("broken_module", order.append)
        self.addCleanup(watch.stop)
        with self.assertRaises(OSError):
            importlib.import_module("broken_module")
        self.assertEqual(order, [])

    def test_a_module_that_is_there_is_reported_at_once(self):
        order = []
        imports.ImportWatch().when_imported("json", order.append)
        self.assertEqual(order, [json])


class SitesTest(Case):
    def test_libraries_are_not_the_users(self):
        known = sites.Sites()
        for name in (os.__file__, json.__file__, sites.__file__, "<frozen importlib._bootstrap>", "/x/site-packages/a/b.py"):
            self.assertFalse(known.is_user(name), name)
        for name in (os.path.join(self.scratch, "train.py"), "train.py", "<string>", "<stdin>", "/tmp/ipykernel_1/2.py"):
            self.assertTrue(known.is_user(name), name)

    def test_the_innermost_frame_of_the_user_is_found(self):
        known, scope = sites.Sites(), {}
        exec(compile("def inner(f):\n    return f()\n", "/home/me/train.py", "exec"), scope)
        place = scope["inner"](known.here)
        self.assertEqual(place, {"file": "/home/me/train.py", "line": 2, "function": "inner"})

    def test_an_installed_program_is_its_users_own_code(self):
        root = os.path.join(self.scratch, "site-packages") + os.sep
        os.makedirs(root + "trainer")
        main = sys.modules["__main__"]
        before = getattr(main, "__file__", None)
        self.addCleanup(setattr, main, "__file__", before)
        main.__file__ = root + "trainer/cli.py"
        self.assertEqual(sites.main_package([root]), root + "trainer" + os.sep)
        main.__file__ = root + "torch/distributed/run.py"
        os.makedirs(root + "torch")
        self.assertEqual(sites.main_package([root]), "")


class ArgumentsTest(unittest.TestCase):
    def parser(self):
        parser = argparse.ArgumentParser()
        parser.add_argument("--learning-rate", type=float, default=0.1)
        parser.add_argument("-b", "--batch-size", type=int, default=8)
        parser.add_argument("--amp", action="store_true")
        parser.add_argument("--api-key", default="none")
        return parser

    def test_given_arguments_are_recognised_in_every_spelling(self):
        self.assertEqual(arguments.names_given(self.parser(), ["--learn=3", "-b4"]), ["learning_rate", "batch_size"])
        self.assertEqual(arguments.names_given(self.parser(), ["--amp"]), ["amp"])
        self.assertEqual(arguments.names_given(self.parser(), []), [])

    def test_defaults_are_those_of_the_parser(self):
        self.assertEqual(arguments.defaults(self.parser()), {"learning_rate": 0.1, "batch_size": 8, "amp": False, "api_key": "none"})

    def test_secrets_are_hidden(self):
        self.assertEqual(arguments.hidden({"api_key": "abc", "keys": 3, "lr": 0.1}), {"api_key": "(hidden)", "keys": 3, "lr": 0.1})


class Row:
    """As much of a tensor as a cached batch asks for."""

    def __init__(self, nbytes):
        self.nbytes = nbytes
        self._version = 0

    def clone(self):
        return Row(self.nbytes)

    def is_inference(self):
        return False


class CachedBatchesTest(unittest.TestCase):
    def given(self, step_ns, batches, of=1000):
        """The names of the batches of 40 steps, where the loader has so many of so many bytes."""
        left = iter([[str(number), Row(of)] for number in range(batches)])
        cached = cached_batches.CachedBatches(unittest.mock.Mock(Tensor=Row))
        return [cached.next(lambda: next(left), step * step_ns)[0] for step in range(40)]

    def turns(self, count):
        return [str(step % count) for step in range(40)]

    def test_the_first_ones_come_again_in_turns(self):
        self.assertEqual(self.given(1_000_000, 100), self.turns(8))

    def test_those_of_one_second_are_enough(self):
        self.assertEqual(self.given(400_000_000, 100), self.turns(3))
        self.assertEqual(self.given(5_000_000_000, 100), self.turns(1))

    def test_large_ones_are_few(self):
        self.assertEqual(self.given(1_000_000, 100, of=100 << 20), self.turns(3))

    def test_an_epoch_that_ends_is_no_end_of_them_unless_there_is_none(self):
        self.assertEqual(self.given(1_000_000, 2), self.turns(2))
        with self.assertRaises(StopIteration):
            cached_batches.CachedBatches(unittest.mock.Mock(Tensor=Row)).next(lambda: next(iter([])), 0)


class Silent:
    """A recorder that takes nothing."""

    sample = python_stack = None


class SamplerTest(unittest.TestCase):
    def test_the_line_of_an_instruction_is_the_frames_own(self):
        frame = sys._getframe(0)
        place, line = (frame.f_code, frame.f_lasti), frame.f_lineno
        self.assertTrue(sites.Sites().describe_code(*place).endswith(":%d:%s" % (line, frame.f_code.co_name)))

    def test_the_users_line_is_kept_behind_many_library_frames(self):
        known, scope = sites.Sites(), {}
        library = "def deep(n, f):\n    return f() if n == 0 else deep(n - 1, f)\n"
        exec(compile(library, "/x/site-packages/lib/deep.py", "exec"), scope)
        exec(compile("def mine(f):\n    return deep(30, f)\n", "/home/me/train.py", "exec"), scope)
        texts = []
        known.text = lambda text: texts.append(text) or len(texts)
        looking = sampler.Names(known)
        scope["mine"](lambda: looking.id_of(sampler.stack_of(threading.get_ident())[4:]))
        lines = texts[0].split("\n")
        self.assertEqual(len(lines), sampler.FRAME_LIMIT + 1)
        self.assertEqual(lines[-1], "/home/me/train.py:2:mine")

    def test_without_an_interpreter_lock_nothing_is_sampled(self):
        looking, interval = sampler.LockedSampler(Silent, None, 0, 0.001), sys.getswitchinterval()
        with unittest.mock.patch.object(sys, "_is_gil_enabled", lambda: False, create=True):
            self.assertRaisesRegex(RuntimeError, "no interpreter lock", looking.start)
        self.assertEqual(sys.getswitchinterval(), interval)
        looking.stop()

    def test_a_stack_is_described_once(self):
        known, texts = sites.Sites(), []
        known.text = lambda text: texts.append(text) or len(texts)
        looking = sampler.Names(known)
        place = (sys._getframe(0).f_code, 0)
        ids = [looking.id_of(place) for _ in range(3)]
        self.assertEqual((ids, len(texts)), ([1, 1, 1], 1))


class LossesTest(Case):
    def test_a_forked_child_frees_nothing_that_only_its_parent_may_free(self):
        """Freeing an event calls CUDA, which ends a forked process."""

        class Event:
            def __del__(self):
                os._exit(1)

        class Agent:
            at_fork, at_end = [], []

        losses = measure.Losses(Agent, None)
        losses._waiting = (Event(), 0, 0)
        child = os.fork()
        if child == 0:
            for action in Agent.at_fork:
                action()
            del losses
            os._exit(0)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        losses._waiting[0].__class__.__del__ = lambda self: None


class StacksTest(Case):
    def test_the_signal_writes_the_stacks_and_ends_nothing(self):
        source = """
import os, sys, time
from fullwatt import stacks
class Agent:
    folder = sys.argv[1]
path = stacks.install(Agent)
def stuck():
    print("ready", flush=True)
    sys.stdin.readline()
stuck()
stacks.remove_if_empty(path)
"""
        child = subprocess.Popen(
            [sys.executable, "-c", source, self.scratch],
            env=dict(os.environ, PYTHONPATH=PACKAGE_PARENT),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.assertEqual(child.stdout.readline(), b"ready\n")
        path = os.path.join(self.scratch, "stacks-%d.txt" % child.pid)
        self.assertTrue(os.path.exists(path))
        os.kill(child.pid, signal.SIGRTMIN + 11)
        for _ in range(1000):
            if os.path.getsize(path):
                break
            time.sleep(0.01)
        child.communicate(b"\n")
        self.assertEqual(child.returncode, 0)
        with open(path) as file:
            self.assertIn("in stuck", file.read())


if __name__ == "__main__":
    unittest.main()
