"""A training in which something is turned on and off in turn, group of steps by group of steps; overhead.py runs it.

Usage: turns.py SWITCH[+SWITCH…] WORKLOAD SECONDS OUTPUT. Several switches are turned on one after the other, with a group without any between them.
Two runs of one program differ by more than what is measured here; neighbouring groups of one run do not.
"""

import json
import pathlib
import random
import sys

import training
from switches import SWITCHES

WARM_UP = 60  # steps; then the recorder's own hooks are in place
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
        self.without = []
        self.turns = []  # each stands between two groups without it

    def step_ended(self):
        self.steps += 1
        if self.switches is None:
            self.warm_up()
        elif self.steps == self.settle:
            self.started = training.drained_ns()
        elif self.steps == self.settle + self.size:
            group = (training.drained_ns() - self.started) / 1e3 / self.size
            if self.on:
                self.turn_off(group)
            else:
                self.without.append(group)
                self.turn_on()
            self.begin()

    def warm_up(self):
        if self.steps == WARM_UP // 2:
            self.started = training.drained_ns()
        elif self.steps == WARM_UP:
            pace = (training.drained_ns() - self.started) / (WARM_UP - WARM_UP // 2)
            self.switches = {name: SWITCHES[name]() for name in self.names}
            for switch in self.switches.values():
                switch.turn(False)
            self.size = max(switch.group(pace) for switch in self.switches.values())
            self.begin()

    def begin(self):
        self.settle = max(switch.settle for switch in self.switches.values()) + self.chance.randrange(MORE_SETTLE)
        self.steps = 0

    def turn_on(self):
        self.turned_on = training.drained_ns()
        self.on = self.names[len(self.turns) % len(self.names)]
        self.switches[self.on].turn(True)

    def turn_off(self, group):
        self.switches[self.on].turn(False)
        took = (training.drained_ns() - self.turned_on) / 1e3
        self.turns.append({"switch": self.on, "step_us": group, "took_us": took, "steps": self.steps})
        self.on = None

    def over(self):
        for name, switch in (self.switches or {}).items():
            switch.leave(name == self.on)


def main():
    switches, name, seconds, output = sys.argv[1].split("+"), sys.argv[2], float(sys.argv[3]), pathlib.Path(sys.argv[4])
    turns = Turns(switches)
    training.train(name, seconds, turns.step_ended)
    turns.over()
    output.write_text(json.dumps({"device": training.device(), "without": turns.without, "turns": turns.turns}), encoding="utf-8")


if __name__ == "__main__":
    main()
