"""One of two like trainings that take turns, group of steps by group of steps, while the other stands still; one of them has windows halfway. overhead.py runs both.

Usage: pairs.py plain|recorded WORKLOAD SECONDS OUTPUT MINE THEIRS, the last two being pipes. What windows leave behind shows in how the pace of the two relates before and after
them: a machine changes its own pace over minutes, but not between neighbouring groups. Both run on one CPU, the same: on which ones their threads happen to be makes two processes differ.
"""

import json
import os
import pathlib
import select
import sys

import training
from switches import SWITCHES

WARM_UP, SETTLE = 60, 2  # steps
GROUP_NS, LEAST_GROUP = 40_000_000, 3
WINDOWS, WINDOW_STEPS = 6, 20
LOST_S = 90  # so long nobody waits for the other training


class Pair:
    """Told of each step's end, it stands still while it is the other's turn, and keeps the mean step of each of its own groups in microseconds."""

    def __init__(self, recorded, mine, theirs, seconds):
        self.recorded, self.alone = recorded, False
        self.mine, self.theirs = (os.open(pipe, os.O_RDWR) for pipe in (mine, theirs))
        self.half_ns = seconds * 1e9 / 2
        self.steps = self.size = 0
        self.began = self.started = 0
        self.groups, self.windows_after = [], None  # how many groups were before the windows
        self.left = []  # what is still to be turned: (switch, on)

    def step_ended(self):
        self.steps += 1
        if self.alone:
            return
        if not self.size:
            self.warm_up()
        elif self.left:
            self.go_through_windows()
        elif self.steps == SETTLE:
            self.started = training.drained_ns()
        elif self.steps == SETTLE + self.size:
            self.groups.append((training.drained_ns() - self.started) / 1e3 / self.size)
            if self.recorded and self.windows_after is None and training.drained_ns() - self.began > self.half_ns:
                self.begin_windows()
            else:
                self.pass_on()

    def warm_up(self):
        if self.steps == WARM_UP // 2:
            self.started = training.drained_ns()
        elif self.steps == WARM_UP:
            self.began = training.drained_ns()
            pace = (self.began - self.started) / (WARM_UP - WARM_UP // 2)
            self.size = max(LEAST_GROUP, int(GROUP_NS / pace))
            self.tell()
            self.wait()  # until the other one is warm, too
            if self.recorded:
                self.wait()
            self.steps = 0

    def begin_windows(self):
        self.windows_after = len(self.groups)
        kinds = [SWITCHES[name]() for name in ("times", "causes")]
        self.left = [(kinds[place % 2], on) for place in range(2 * WINDOWS) for on in (True, False)]
        self.steps = 0

    def go_through_windows(self):
        if self.steps % WINDOW_STEPS == 0:
            switch, on = self.left.pop(0)
            switch.turn(on)
            if not self.left:
                self.pass_on()

    def pass_on(self):
        training.drained_ns()
        self.tell()
        self.wait()
        self.steps = 0

    def tell(self, word=b"."):
        os.write(self.theirs, word)

    def wait(self):
        ready = select.select([self.mine], [], [], LOST_S)[0]
        self.alone = not ready or os.read(self.mine, 1) == b"e"

    def over(self):
        self.tell(b"e")


def main():
    role, name, seconds, output, mine, theirs = sys.argv[1:]
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    pair = Pair(role == "recorded", mine, theirs, float(seconds))
    device = training.train(name, float(seconds), pair.step_ended)
    pair.over()
    pathlib.Path(output).write_text(json.dumps({"device": device, "groups": pair.groups, "windows_after": pair.windows_after}), encoding="utf-8")


if __name__ == "__main__":
    main()
