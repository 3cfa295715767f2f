"""One of several like trainings that take turns, some steps each, while the others stand still; halfway something happens to it. overhead.py runs all of them.

Usage: relay.py nothing|windows|times|causes|bare_cupti WORKLOAD SECONDS OUTPUT MINE NEXT [first], MINE and NEXT being pipes; it ends when all had their turns, or after SECONDS. What
windows leave behind shows in how the pace of a training that had some relates to that of one that had none, before and after them: a machine changes its own pace over minutes, but
not between neighbouring turns. All run on one CPU, the same: on which ones their threads happen to be makes processes differ. Of each turn the shortest step counts: what stays behind
lengthens all of them, what only interrupts one does not.
"""

import contextlib
import json
import os
import pathlib
import select
import sys
import threading

import torch
import training
from switches import SWITCHES

WARM_UP, SETTLE = 60, 2  # steps
TURN_NS, LEAST_STEPS = 40_000_000, 3
WINDOWS, WINDOW_STEPS = 6, 20
TURNS = 48  # before it happens, and as many after it; while it happens to one training the others wait
HAPPENS = {"nothing": [], "windows": ["times", "causes"], "times": ["times"], "causes": ["causes"], "bare_cupti": ["bare_cupti"]}  # by turns
LOST_S = 90  # so long nobody waits for the others
GO, END = b".", b"e"


class Over(BaseException):
    """It had its turns, or another one ended before that; a workload lets it pass."""


class Runner:
    """Told of each step's end, it stands still while it is not its turn, and keeps the shortest step of each of its turns in microseconds."""

    def __init__(self, happens, mine, following, is_first):
        self.happens, self.is_first = happens, is_first
        self.mine, self.following = (os.open(pipe, os.O_RDWR) for pipe in (mine, following))
        self.steps = self.size = self.last = 0
        self.lengths, self.turns, self.half = [], [], None  # the last is how many turns were before it happened
        self.left = []  # what is still to be turned: (switch, on)

    def step_ended(self):
        self.steps += 1
        before, self.last = self.last, training.drained_ns()
        self.lengths.append((self.last - before) / 1e3)
        if not self.size:
            self.warm_up()
        elif self.left:
            self.let_it_happen()
        elif self.steps == SETTLE + self.size:
            self.turns.append(min(self.lengths[-self.size:]))
            if len(self.turns) == TURNS:
                self.begin_halfway()
            elif len(self.turns) == 2 * TURNS:
                self.tell(GO)
                raise Over
            else:
                self.pass_on()

    def warm_up(self):
        if self.steps == WARM_UP:
            paces = sorted(self.lengths[WARM_UP // 2:])
            self.size = max(LEAST_STEPS, int(TURN_NS / 1e3 / paces[len(paces) // 2]))
            stay_on_one_cpu()
            if not self.is_first:
                self.wait()
            self.pass_on()  # once around, and all are warm

    def begin_halfway(self):
        self.half = len(self.turns)
        switches = [SWITCHES[name]() for name in HAPPENS[self.happens]]
        self.left = [(switches[place % len(switches)], on) for place in range(WINDOWS if switches else 0) for on in (True, False)]
        self.steps = 0
        if not self.left:
            self.pass_on()

    def let_it_happen(self):
        if self.steps % WINDOW_STEPS == 0:
            switch, on = self.left.pop(0)
            switch.turn(on)
            if not self.left:
                self.pass_on()

    def pass_on(self):
        self.tell(GO)
        self.wait()
        self.steps, self.lengths, self.last = 0, [], training.drained_ns()

    def tell(self, word):
        os.write(self.following, word)

    def wait(self):
        ready = select.select([self.mine], [], [], LOST_S)[0]
        if not ready or os.read(self.mine, 1) == END:
            raise Over


def main():
    happens, name, seconds, output, mine, following, *first = sys.argv[1:]
    torch.set_num_threads(1)
    have_a_thread()
    runner = Runner(happens, mine, following, bool(first))
    with contextlib.suppress(Over):
        training.train(name, float(seconds), runner.step_ended)
    runner.tell(END)  # nobody has to wait any more
    pathlib.Path(output).write_text(json.dumps({"device": training.device(), "turns": runner.turns, "half": runner.half}), encoding="utf-8")


def stay_on_one_cpu():
    """All threads; only now, since all trainings start at once."""
    cpu = {max(os.sched_getaffinity(0))}
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread), cpu)


def have_a_thread():
    """The C library takes shortcuts in a process that never had a second thread, which trainings have: one on a CPU, by one thread, would lose them by its first window."""
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()


if __name__ == "__main__":
    main()
