"""A trial in which fixes are turned on and off while the training runs: neighbouring steps of one process differ by the fix alone.

FULLWATT_TRIAL has `turns`: {"fixes": [id, …], "pairs": n, "seconds": t}. One fix after the other gets pairs of t seconds of steps with and without it, on top
of those that paid before it, until they tell whether it pays, but at most n; what was measured is told by the fact `turn`. Then the trial is over.
"""

import sys
from time import perf_counter

from ..agent import torch_distributed

SETTLE = 3  # steps after a turn that do not count: compiling, choosing algorithms, filling queues
LEAST_STEPS = 3  # that are measured, however long they are
LEAST_SPEEDUP = 1.01
CLEAR_SPEEDUP = 1.2  # in each of so few pairs:
CLEAR_PAIRS = 3
SIGN_PAIRS = 5  # where chance alone has each of them faster in 1 case of 32
MOST_SLOWER = 2


class Turns:
    """Leads a training through all turns."""

    def __init__(self, torch, agent, report, wanted, stop):
        self.fixes = wanted["fixes"]
        self._torch = torch
        self._agent = agent
        self._report = report
        self._most_pairs = int(wanted["pairs"])
        self._seconds = float(wanted["seconds"])
        self._switches = {}
        self._marker = None  # the optimiser whose steps are counted
        self._steps = 0  # of this part of the course; it has at least so many, and lasts until
        self._least_steps = self._until = 0
        self._course = None
        self._stop = stop
        agent.at_steady.append(self._begin)

    def takes(self, name, turn):
        """Whether the fix is one of those that take turns: then `turn(on)` is its switch, and it is off at first."""
        if name in self.fixes:
            self._switches[name] = turn
        return name in self.fixes

    def _begin(self):
        if (torch_distributed("get_world_size") or 1) > 1:
            self._agent.facts.add("turn", id="", state="refused", text="several processes train together")
            self._stop()
        self._course = self._all_turns()
        module = sys.modules["torch.optim.optimizer"]  # torch.optim deletes the name
        module.register_optimizer_step_post_hook(self._step_ended)

    def _step_ended(self, optimizer, *_):
        if self._marker is None and not self._agent.trains_elsewhere():
            self._marker = optimizer
        if optimizer is not self._marker:
            return
        self._steps += 1
        if self._steps < self._least_steps or perf_counter() < self._until:
            return
        part = next(self._course, None)
        if part is None:
            self._stop()
            return
        self._least_steps, seconds = part
        self._steps, self._until = 0, perf_counter() + seconds

    def _all_turns(self):
        """Gives again and again how many steps and seconds it wants to pass."""
        for name in self.fixes:
            turn = self._switches.get(name)
            self._agent.facts.add("turn", id=name, state="begun")
            if turn is None or self._report.state(name) == "refused":
                continue  # the fact `fix` says why
            times = {False: [], True: []}
            once_s = yield from self._pairs_of(turn, times)
            kept = self._report.state(name) != "refused" and pays(ratios_of(times))
            if kept:
                turn(True)
            self._agent.facts.add("turn", id=name, state="measured", kept=kept, without_ms=times[False], with_ms=times[True], once_s=once_s)

    def _pairs_of(self, turn, times):
        """The pairs of one fix; returns the seconds that its first use took beyond usual steps."""
        first_use, is_on = 0.0, False
        for pair in range(self._most_pairs):
            for on in (False, True) if pair % 2 == 0 else (True, False):
                started = self._now()
                if on != is_on:
                    turn(on)
                    is_on = on
                yield SETTLE, 0
                settled = self._now()
                yield LEAST_STEPS, self._seconds
                times[on].append((self._now() - settled) * 1e3 / self._steps)
                if on and pair == 0:
                    first_use = settled - started
            if is_decided(ratios_of(times)):
                break
        if is_on:
            turn(False)
        return max(0.0, first_use - SETTLE * middle(times[True]) / 1e3)

    def _now(self):
        """The time when all work that was given to the GPU is done."""
        if self._torch.cuda.is_initialized():
            self._torch.cuda.synchronize()
        return perf_counter()


def ratios_of(times):
    """How many times as fast, pair by pair: the machine may be at another pace from pair to pair."""
    return [off / on for off, on in zip(times[False], times[True])]


def is_decided(ratios):
    """Whether no other pair is needed. Chance alone keeps a fix that does nothing in 1 case of 18."""
    slower = sum(ratio <= 1 for ratio in ratios)
    return is_clear(ratios) or slower > MOST_SLOWER or len(ratios) >= SIGN_PAIRS and is_faster(ratios)


def pays(ratios):
    """Whether it was faster beyond noise, and by as much as is worth it."""
    return is_faster(ratios) and middle(ratios) >= LEAST_SPEEDUP


def is_clear(ratios):
    """Faster by far, again and again."""
    return len(ratios) >= CLEAR_PAIRS and min(ratios) >= CLEAR_SPEEDUP


def is_faster(ratios):
    """Faster in all pairs, or in all but few of many: signs, because single steps may be long for reasons of their own, such as the end of an epoch."""
    few = 0 if len(ratios) < 8 else 1 if len(ratios) < 12 else MOST_SLOWER
    return sum(ratio <= 1 for ratio in ratios) <= few


def middle(values):
    """The median."""
    values = sorted(values)
    half = len(values) // 2
    return values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2


class NoTurns:
    """Outside of such a trial every fix is simply in force."""

    @staticmethod
    def takes(_name, _turn):
        """No."""
        return False
