"""What the training programs of this folder share: arguments, the device, and a clock of their own.

The training loops stand in the programs, as users write them. What `Meter` measures is held against what fullwatt says about the same run.
"""

import argparse
import contextlib
import importlib
import json
import os
import statistics
import sys
import time

import torch

EXIT_SKIPPED = 77


def need(module):
    """The module, or the end of the program with the code that means skipped."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        print(f"skipped: {error}")
        sys.exit(EXIT_SKIPPED)


@contextlib.contextmanager
def nobody_watching():
    """What runs here are no steps of the training, whoever counts those of its optimisers."""
    module = sys.modules["torch.optim.optimizer"]  # torch.optim deletes the name
    tables = [module._global_optimizer_pre_hooks, module._global_optimizer_post_hooks]
    kept = [dict(table) for table in tables]
    for table in tables:
        table.clear()
    try:
        yield
    finally:
        for table, entries in zip(tables, kept):
            table.update(entries)


def drained_ns():
    """Now, with all work of the GPU done: a program may be many steps ahead of it."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter_ns()


class Meter:
    """The program's own clock: `step` ends a training step and tells whether to go on."""

    WARM_UP = 10
    BUSY_REPEATS, BUSY_STEPS, BUSY_WARM_S = 5, 20, 0.4
    NO_GAPS = 1.15  # times the GPU's own time: more means that it waited for the host
    SLEEP_HZ = 2e9  # no card of today is faster

    def __init__(self):
        parser = argparse.ArgumentParser()
        parser.add_argument("--seconds", type=float, default=12.0, help="end this long after the first step")
        parser.add_argument("--steps", type=int, default=0, help="end after so many steps; 0: only by time")
        parser.add_argument("--json", metavar="FILE", help="write the program's own measurement")
        parser.add_argument("--trace", action="store_true", help="write when each step ended, too")
        self.options = parser.parse_args()
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.ends, self.samples = [], []
        self.over = None
        self.waits, self.costs = [], []  # (step, seconds)
        torch.manual_seed(0)

    def pick(self, gpu, cpu):
        """A size that suits the device."""
        return gpu if self.device == "cuda" else cpu

    def data(self):
        """The batch is here: what passed since the last step was waiting for it."""
        if self.ends:
            self.waits.append((len(self.ends), time.perf_counter() - self.ends[-1] / 1e9))

    def planted(self, started):
        """The planted line, begun at `started` (time.perf_counter), has ended."""
        self.costs.append((len(self.ends), time.perf_counter() - started))

    def step(self, samples):
        now = drained_ns() if len(self.ends) == self.WARM_UP else time.perf_counter_ns()
        self.ends.append(now)
        self.samples.append(samples)
        goes_on = len(self.ends) != self.options.steps and now - self.ends[0] < self.options.seconds * 1e9
        if not goes_on:
            self.over = drained_ns()
        return goes_on

    def finish(self, loss=None, run_step=None):
        """Ends the measurement. `run_step` is a step without its waits, for the busy time of the GPU."""
        result = self.result(self.over or drained_ns())
        result["loss"] = None if loss is None else float(loss.detach()).hex()
        print("steps={steps} seconds={seconds:.2f} samples_per_second={samples_per_second:.1f}".format(**result), flush=True)
        if self.options.json and os.environ.get("RANK", "0") == "0":
            result["busy_ms"] = self.busy(run_step) if run_step and self.device == "cuda" else None
            with open(self.options.json, "w", encoding="utf-8") as file:
                json.dump(result, file)

    def busy(self, run_step):
        """GPU time of one step by CUDA events. Where the host is ahead of the GPU it is the time between two steps of many, on a card as warm as in training; elsewhere
        the queue is filled behind a sleeping kernel, so that the host's gaps fall out, though a rested card runs a little faster."""
        with nobody_watching():
            running = self.between_steps(run_step)
            rested = statistics.median(self.behind_sleep(run_step, running / 1e3) for _ in range(self.BUSY_REPEATS))
        return running if running < self.NO_GAPS * rested else rested

    def between_steps(self, run_step):
        events, started = [], time.perf_counter()
        while len(events) < self.BUSY_STEPS or time.perf_counter() - started < self.BUSY_WARM_S:
            run_step()
            events.append(torch.cuda.Event(enable_timing=True))
            events[-1].record()
        torch.cuda.synchronize()
        times = [a.elapsed_time(b) for a, b in zip(events, events[1:])]
        return statistics.median(times[len(times) // 2:])

    def behind_sleep(self, run_step, step_s):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(int(self.SLEEP_HZ * (2 * step_s + 0.005)))
        start.record()
        run_step()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end)

    def result(self, end):
        first = min(self.WARM_UP, len(self.ends) // 2)
        intervals = sorted((b - a) / 1e6 for a, b in zip(self.ends[first:], self.ends[first + 1:])) or [0.0]
        seconds = (end - self.ends[first]) / 1e9
        result = {
            "device": self.device, "torch": torch.__version__, "python": sys.version.split()[0], "steps": len(self.ends),
            "seconds": seconds, "samples_per_second": sum(self.samples[first + 1:]) / seconds,
            "step_ms": {"median": statistics.median(intervals), "mean": statistics.fmean(intervals), "p05": intervals[len(intervals) // 20],
                        "p95": intervals[-1 - len(intervals) // 20], "count": len(intervals)},
            "data_ms": self.per_step(self.waits, first), "planted_ms": self.per_step(self.costs, first),
        }
        if self.options.trace:
            result.update(ends_ns=self.ends, drained_step=self.WARM_UP)
        return result

    def per_step(self, costs, first):
        """Milliseconds of a step, in the mean over the steps after the first ones."""
        if not costs:
            return None
        return 1e3 * sum(seconds for step, seconds in costs if step > first) / max(1, len(self.ends) - first - 1)
