"""A training in which something is turned on and off in turn, group of steps by group of steps; overhead.py runs it.

Usage: turns.py SWITCH WORKLOAD SECONDS OUTPUT. The workload `shortest` is a training of very short steps, the others are those of tests/workloads.
Two runs of one program differ by more than what is measured here; neighbouring groups of one run do not.
"""

import json
import pathlib
import runpy
import statistics
import sys
import time

import torch
import truth
from switches import SWITCHES

WARM_UP = 60  # steps; then the recorder's own hooks are in place
GROUP_NS, LEAST_GROUP, MOST_GROUP = 30_000_000, 4, 40
SETTLE = 3  # steps after the switch that do not count


class Turns:
    """Told of each step's end, it turns the switch, and keeps the median step of each group in microseconds."""

    def __init__(self, make_switch):
        self.make_switch = make_switch
        self.switch = None
        self.on = True
        self.size = 0
        self.ends = []
        self.groups = {True: [], False: []}

    def step_ended(self):
        self.ends.append(time.perf_counter_ns())
        if self.switch is None and len(self.ends) > WARM_UP:
            pace = (self.ends[-1] - self.ends[WARM_UP // 2]) / (WARM_UP // 2)
            self.size = max(LEAST_GROUP, min(MOST_GROUP, int(GROUP_NS / pace))) + SETTLE
            self.switch = self.make_switch()
            self.begin()
        elif self.switch is not None and len(self.ends) > self.size:
            lengths = [(b - a) / 1e3 for a, b in zip(self.ends, self.ends[1:])]
            self.groups[self.on].append(statistics.median(lengths[SETTLE:]))
            self.begin()

    def begin(self):
        self.on = not self.on
        self.switch.turn(self.on)
        self.ends = [time.perf_counter_ns()]

    def over(self):
        if self.switch is not None and self.on:
            self.switch.turn(False)


def train_shortest(turns, device, seconds):
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = torch.utils.data.TensorDataset(torch.randn(1_000_000, 16))
    end = time.monotonic() + seconds
    for (inputs,) in torch.utils.data.DataLoader(data, batch_size=1):
        optimizer.zero_grad()
        model(inputs.to(device)).sum().backward()
        optimizer.step()
        turns.step_ended()
        if time.monotonic() > end:
            break


def train_workload(turns, name, seconds):
    sys.path.insert(0, str(truth.WORKLOADS))
    import common

    step = common.Meter.step

    def step_and_turn(meter, samples):
        turns.step_ended()
        return step(meter, samples)

    common.Meter.step = step_and_turn
    sys.argv = [str(truth.script(name)), "--seconds", str(seconds)]
    runpy.run_path(sys.argv[0], run_name="__main__")


def main():
    switch, name, seconds, output = sys.argv[1], sys.argv[2], float(sys.argv[3]), pathlib.Path(sys.argv[4])
    turns, device = Turns(SWITCHES[switch]), "cuda" if torch.cuda.is_available() else "cpu"
    if name == "shortest":
        train_shortest(turns, device, seconds)
    else:
        train_workload(turns, name, seconds)
    turns.over()
    output.write_text(json.dumps({"device": device, "without": turns.groups[False], "with": turns.groups[True]}), encoding="utf-8")


if __name__ == "__main__":
    main()
