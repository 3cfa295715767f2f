"""A training in which something is turned on and off in turn, group of steps by group of steps; overhead.py runs it.

Usage: turns.py SWITCH[+SWITCH…] WORKLOAD SECONDS OUTPUT. Several switches are turned on one after the other, with a group without any between them. The workload `shortest` is a training of very short steps, the others are those of tests/workloads.
Two runs of one program differ by more than what is measured here; neighbouring groups of one run do not.
"""

import json
import pathlib
import random
import runpy
import sys
import time

import torch
import truth
from switches import SWITCHES

sys.path.insert(0, str(truth.WORKLOADS))
import common  # noqa: E402

WARM_UP = 60  # steps; then the recorder's own hooks are in place
BEFORE = 10  # groups before the first turn: what is left behind by one shows only beside these
MOST_GROUP = 40
MORE_SETTLE = 4  # steps of which up to as many follow a turn by chance: what comes every few steps must not always meet the same groups


class Turns:
    """Told of each step's end, it turns the switches, and keeps the mean step of each group in microseconds, and of each time that one was on how long that was as a
    whole, with turning, and for how many steps."""

    def __init__(self, names):
        self.names = names
        self.switches = None
        self.on = None  # the name of the one that is on
        self.chance = random.Random(0)
        self.settle = self.size = 0
        self.steps = 0  # of the warm-up, then of the group
        self.started = self.turned_on = 0
        self.before, self.without = [], []
        self.turns = []  # each stands between two groups without it

    def step_ended(self):
        self.steps += 1
        if self.switches is None:
            self.warm_up()
        elif self.steps == self.settle:
            self.started = common.drained_ns()
        elif self.steps == self.settle + self.size:
            group = (common.drained_ns() - self.started) / 1e3 / self.size
            if self.on:
                self.turn_off(group)
            elif len(self.before) < BEFORE:
                self.before.append(group)
            else:
                self.without.append(group)
                self.turn_on()
            self.begin()

    def warm_up(self):
        if self.steps == WARM_UP // 2:
            self.started = common.drained_ns()
        elif self.steps == WARM_UP:
            pace = (common.drained_ns() - self.started) / (WARM_UP - WARM_UP // 2)
            self.switches = {name: SWITCHES[name]() for name in self.names}
            for switch in self.switches.values():
                switch.turn(False)
            self.size = max(max(switch.least_group, min(MOST_GROUP, int(switch.group_ns / pace))) for switch in self.switches.values())
            self.begin()

    def begin(self):
        self.settle = max(switch.settle for switch in self.switches.values()) + self.chance.randrange(MORE_SETTLE)
        self.steps = 0

    def turn_on(self):
        self.turned_on = common.drained_ns()
        self.on = self.names[len(self.turns) % len(self.names)]
        self.switches[self.on].turn(True)

    def turn_off(self, group):
        self.switches[self.on].turn(False)
        took = (common.drained_ns() - self.turned_on) / 1e3
        self.turns.append({"switch": self.on, "step_us": group, "took_us": took, "steps": self.steps})
        self.on = None

    def over(self):
        if self.on:
            self.switches[self.on].turn(False)


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
    step = common.Meter.step

    def step_and_turn(meter, samples):
        turns.step_ended()
        return step(meter, samples)

    common.Meter.step = step_and_turn
    sys.argv = [str(truth.script(name)), "--seconds", str(seconds)]
    runpy.run_path(sys.argv[0], run_name="__main__")


def main():
    switches, name, seconds, output = sys.argv[1].split("+"), sys.argv[2], float(sys.argv[3]), pathlib.Path(sys.argv[4])
    turns, device = Turns(switches), "cuda" if torch.cuda.is_available() else "cpu"
    if name == "shortest":
        train_shortest(turns, device, seconds)
    else:
        train_workload(turns, name, seconds)
    turns.over()
    output.write_text(json.dumps({"device": device, "before": turns.before, "without": turns.without, "turns": turns.turns}), encoding="utf-8")


if __name__ == "__main__":
    main()
