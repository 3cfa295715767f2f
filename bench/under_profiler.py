"""Runs a training program with torch.profiler, or bare CUPTI, on for twenty of its steps, as fullwatt's windows are.

Usage: under_profiler.py bare|cuda|cpu+cuda MARKS PROGRAM [ARGUMENT…]; when the profiler was on goes to the file MARKS.
"""

import json
import os
import runpy
import sys
import time

import torch
from bare_cupti import BareCupti
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import ProfilerActivity, profile

FIRST, LENGTH = 60, 20


def profiler(mode):
    if mode == "bare":
        return BareCupti()
    activities = [ProfilerActivity.CUDA] if torch.cuda.is_available() else []
    return profile(activities=activities + ([ProfilerActivity.CPU] if mode != "cuda" or not activities else []))


class Window:
    def __init__(self, mode, marks):
        self.profiler = profiler(mode)
        self.marks, self.steps, self.times = marks, 0, []

    def __call__(self, optimizer, args, kwargs):
        self.steps += 1
        if self.steps == FIRST:
            self.profiler.start()
            self.times.append(time.perf_counter_ns())
        elif self.steps == FIRST + LENGTH:
            self.times.append(time.perf_counter_ns())
            self.profiler.stop()
            with open(self.marks, "w", encoding="utf-8") as file:
                json.dump(self.times, file)


if __name__ == "__main__":
    mode, marks, program = sys.argv[1:4]
    register_optimizer_step_post_hook(Window(mode, marks))
    sys.argv = sys.argv[3:]
    sys.path[0] = os.path.dirname(os.path.abspath(program))
    runpy.run_path(program, run_name="__main__")
