"""The recorder behind its C interface, called from Python."""

import gc
import os
import sys
import threading
import time
import unittest

from support import RECORDER, Case, need_recorder

from fullwatt import sampler
from fullwatt.recorder import AFTER_STEP, BACKWARD_PASS, BEFORE_STEP, NEXT_BATCH, Recorder, Training
from spool import spools


class StackTest(unittest.TestCase):
    def setUp(self):
        need_recorder()
        self.stack_of = Recorder(RECORDER).python_stack
        if self.stack_of is None:
            self.skipTest("Python older than 3.11")

    def test_the_stack_of_another_thread_is_read_whole(self):
        ready, over = threading.Event(), threading.Event()

        def waits():
            ready.set()
            over.wait()

        thread = threading.Thread(target=waits)
        thread.start()
        ready.wait()
        stack = self.stack_of(thread.ident)
        over.set()
        thread.join()
        names = [code.co_name for code in stack[::2]]
        self.assertIn("waits", names)
        self.assertEqual(names[-1], "_bootstrap")
        self.assertEqual(self.stack_of(1), ())
        references = sys.getrefcount(waits.__code__)
        for _ in range(100):
            self.stack_of(threading.get_ident())
        self.assertEqual(sys.getrefcount(waits.__code__), references)

    def test_no_garbage_is_collected_while_a_stack_is_read(self):
        collections, thresholds = [], gc.get_threshold()

        def count(phase, _):
            collections.append(phase)

        def deep(frames):
            return self.stack_of(threading.get_ident()) if frames == 0 else deep(frames - 1)

        gc.callbacks.append(count)
        gc.set_threshold(10)
        try:
            self.assertGreater(len(deep(100)), 100)  # makes some hundred frame objects
        finally:
            gc.set_threshold(*thresholds)
            gc.callbacks.remove(count)
        self.assertLessEqual(collections.count("start"), 3)  # those before and after
        self.assertTrue(gc.isenabled())

    def test_a_collector_that_is_off_stays_off(self):
        gc.disable()
        try:
            self.stack_of(threading.get_ident())
            self.assertFalse(gc.isenabled())
        finally:
            gc.enable()


class LineSamplerTest(Case):
    def setUp(self):
        super().setUp()
        need_recorder()
        self.library = Recorder(RECORDER)
        self.assertEqual(self.library.open(self.scratch, 0, 0), "")
        self.addCleanup(self.library.close)
        if self.library.sampler_start(100_000) != 0:
            self.assertLess(sys.version_info, (3, 11), "the frames of this Python are not found")
            self.skipTest("Python older than 3.11")
        self.library.sampler_stop(lambda stack: 0)

    def sampled(self, work, tell_unknown=None):
        """The names of the functions on the stack, innermost first, of each sample while `work` runs again and again."""
        stacks = []
        self.assertEqual(self.library.sampler_start(100_000), 0)
        for _ in range(200):
            work(time.perf_counter() + 0.01)

        def name(stack):
            stacks.append([code.co_name for code in stack[::2]])
            return self.library.text("\n".join(stacks[-1]))

        self.library.sampler_stop(name, tell_unknown)
        self.library.close()
        spool = spools(self.scratch)[0]
        samples = [spool.texts[sample.id].split("\n") for sample in spool.of_kind("sample")]
        times = [sample.start_ns for sample in spool.of_kind("sample")]
        self.assertEqual(times, sorted(times))
        self.assertGreater(len(samples), 20)
        return samples

    def share(self, samples, *names):
        """How many of them have these functions on the stack, in this order."""
        return sum([name for name in sample if name in names] == list(names) for sample in samples) / len(samples)

    def test_functions_that_call_each_other_are_seen_whole(self):
        def inner(end):
            while time.perf_counter() < end:
                sum(range(100))

        def outer(end):
            inner(end)

        self.assertGreater(self.share(self.sampled(outer), "inner", "outer", "sampled"), 0.9)

    def test_generators_and_sleeping_are_seen(self):
        def waits(end):
            yield time.sleep(max(0, end - time.perf_counter()))

        def outer(end):
            list(waits(end))

        self.assertGreater(self.share(self.sampled(outer), "waits", "outer"), 0.9)

    def test_a_function_that_is_never_seen_with_the_lock_is_found_nevertheless(self):
        numbers = list(range(300_000))

        def adds(end):
            return sum(numbers) + sum(numbers) + sum(numbers)

        def outer(end):
            adds(end)

        samples = self.sampled(outer, lambda addresses: sampler.tell_unknown(self.library, addresses))
        self.assertGreater(self.share(samples, "adds", "outer"), 0.8)

    def test_a_stack_of_many_pages_is_seen(self):
        def deep(end, frames=90):
            values = [end] * 50 if frames else [time.sleep(max(0, end - time.perf_counter()))]
            return deep(end, frames - 1) if frames else values

        samples = self.sampled(deep)
        self.assertGreater(sum(sample.count("deep") == 91 for sample in samples) / len(samples), 0.9)

    def test_functions_that_are_gone_are_left_out(self):
        def outer(end):
            scope = {"time": time, "end": end}
            exec("def short_lived():\n    while time.perf_counter() < end: pass\nshort_lived()", scope)

        self.assertGreater(self.share(self.sampled(outer), "outer"), 0.9)

    def test_a_child_forks_off_unharmed(self):
        self.assertEqual(self.library.sampler_start(100_000), 0)
        child = os.fork()
        if child == 0:
            self.library.forked()
            os._exit(7)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 7)
        self.library.sampler_stop(lambda stack: 0)


class RecorderTest(Case):
    def setUp(self):
        super().setUp()
        need_recorder()

    def test_every_call_reaches_the_spool_as_it_was_made(self):
        library = Recorder(RECORDER)
        self.assertEqual(library.open(self.scratch, 0, 3), "")
        start = time.perf_counter_ns() - 5_000_000_000
        library.phase(1, start, 0)
        library.samples((1 << 40) + 5)
        library.step(2, time.perf_counter_ns(), 0)
        library.record(13, 1, 4, start, 1 << 50, 1 << 60, (1 << 64) - 1, 7, (1 << 32) - 1)
        library.record(14, 0, library.text("grüße"), start, 0, 0, 0, 0, 0)
        library.close()
        spool = spools(self.scratch)[0]
        step = spool.steps()[0]
        self.assertEqual((spool.header.rank, spool.header.pid), (3, os.getpid()))
        self.assertEqual((step.number, step.optimizer, step.samples), (1, 2, (1 << 40) + 5))
        self.assertGreaterEqual(step.phases["backward"], 5_000_000_000)
        record = spool.of_kind("fetch")[0]
        self.assertEqual(record[1:], (1, 0, 4, start, 1 << 50, 1 << 60, (1 << 64) - 1, 7, (1 << 32) - 1))
        self.assertEqual(spool.texts[spool.of_kind("mark")[0].id], "grüße")

    def test_hooks_leave_all_but_steady_steps_to_python(self):
        library, training, called = Recorder(RECORDER), Training(thread=threading.get_ident(), batch=4), []

        def hook(kind, original, then=None):
            return library.hook(kind, training, original, lambda *args, **options: called.append((args, options)) or "python", then)

        def original(*args, **options):
            return args, options

        backward = hook(BACKWARD_PASS, original)
        self.assertEqual(backward(1, 2, inputs=3), ((1, 2), {"inputs": 3}))
        self.assertEqual((called, training.taken), ([], 0))
        training.credits = 1
        backward(1)
        self.assertEqual((training.taken, training.credits, training.in_backward), (4, 0, 0))
        training.detail = 1
        self.assertEqual(backward(1, inputs=3), "python")
        self.assertEqual(called, [((1,), {"inputs": 3})])

    def test_an_epoch_that_ends_and_errors_pass_through_the_hooks(self):
        library, training, ended = Recorder(RECORDER), Training(thread=threading.get_ident()), []

        class Iterator:
            def __init__(self, error):
                self.error = error

            def __iter__(self):
                return self

            def original(self):
                if self.error is not None:
                    raise self.error
                return 7

        Iterator.__next__ = library.hook(NEXT_BATCH, training, Iterator.original, None, ended.append)
        self.assertEqual(next(Iterator(None)), 7)
        self.assertEqual(training.credits, 1)
        over = Iterator(StopIteration())
        self.assertEqual(list(over), [])
        self.assertEqual(ended, [over])
        with self.assertRaises(KeyError):
            next(Iterator(KeyError("planted")))
        self.assertEqual(len(ended), 1)
        failing = library.hook(BACKWARD_PASS, training, Iterator(KeyError("planted")).original, None)
        with self.assertRaises(KeyError):
            failing()
        self.assertEqual(training.in_backward, 0)

    def test_a_steady_step_ends_in_the_spool(self):
        library, training, optimizer = Recorder(RECORDER), Training(thread=threading.get_ident()), object()
        self.assertEqual(library.open(self.scratch, 0, -1), "")
        careful, asked = [], []
        before = library.hook(BEFORE_STEP, training, None, lambda *args: careful.append("before"))
        after = library.hook(AFTER_STEP, training, None, lambda *args: careful.append("after"), asked.append)
        arguments = (optimizer, (optimizer,), {})
        before(*arguments)
        after(*arguments)
        self.assertEqual(careful, ["after"])  # an optimiser without a number
        training.stepping, training.optimizers[3], training.data_ns, training.taken = 0, id(optimizer), 5, 32
        before(*arguments)
        after(*arguments)
        self.assertEqual((careful, training.steps, training.stepping, training.data_ns), (["after"], 1, 0, 0))
        before(optimizer, (optimizer,), {"closure": 1})
        self.assertEqual(careful, ["after", "before"])
        library.close()
        step = spools(self.scratch)[0].steps()[0]
        self.assertEqual((step.optimizer, step.samples, step.phases["data"]), (3, 32, 5))

    def test_hooks_and_what_they_keep_are_freed(self):
        library, training, kept = Recorder(RECORDER), Training(), object()
        before = sys.getrefcount(kept)
        for _ in range(10):
            library.hook(BACKWARD_PASS, training, print, kept)
        self.assertEqual(sys.getrefcount(kept), before)

    def test_a_folder_that_cannot_be_written_is_named(self):
        self.assertNotEqual(Recorder(RECORDER).open(os.path.join(self.scratch, "none"), 0, -1), "")
