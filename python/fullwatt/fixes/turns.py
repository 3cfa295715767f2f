"""A trial in which fixes are turned on and off while the training runs: neighbouring steps of one process differ by the fix alone.

FULLWATT_TRIAL has `turns`: {"fixes": [id, …], "pairs": n, "seconds": t, "most_seconds": m}. One fix after the other gets pairs of t seconds of steps with and
without it, on top of those that paid before it, until they tell whether it pays, but at most n; what was measured is told by the fact `turn`. What did not pay while
steps were longer by far gets another turn at the end: kernels weigh more once the GPU does not wait. Then, or m seconds after the program's start, the trial is over.
Where the program ends before, the first fix counts if it had pairs enough: another start would not get further.
"""

import sys
from time import perf_counter

from ..agent import torch_distributed

SETTLE = 3  # steps after a turn that do not count: filling queues
FIRST_USE = 6  # the same when a fix is turned on for the first time: compiling, capturing, choosing algorithms
LEAST_STEPS, MOST_STEPS = 3, 40  # of a half, however long or short they are: a program may have few of them
LEAST_SPEEDUP = 1.01
CLEAR_SPEEDUP = 1.2  # in each of so few pairs:
CLEAR_PAIRS = 3
CLEAR_SPREAD = 2  # times that the fastest of them may be as fast as the slowest: otherwise something else made steps long meanwhile
SIGN_PAIRS = 5  # where chance alone has each of them faster in 1 case of 32
MOST_SLOWER = 2
MUCH_SHORTER = 0.8  # a step, and what did not pay may do so now


class Turns:
    """Leads a training through all turns."""

    def __init__(self, torch, agent, report, wanted, stop):
        self.fixes = wanted["fixes"]
        self._torch = torch
        self._agent = agent
        self._report = report
        self._most_pairs = int(wanted["pairs"])
        self._seconds = float(wanted["seconds"])
        self._deadline = perf_counter() + float(wanted["most_seconds"])
        self._switches = {}
        self._marker = None  # the optimiser whose steps are counted
        self._steps = 0  # of this part of the course; it has at least so many, and lasts until
        self._least_steps = self._until = 0
        self._course = None
        self._under_way = None  # what is measured of the present fix
        self._is_first = True
        self._step_ms, self._dropped = 0.0, {}  # a step with all that is kept; what it took when a fix did not pay
        self._stop = stop
        agent.at_steady.append(self._begin)
        agent.at_end.append(self._program_ends)

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
        if self._steps < self._least_steps or self._steps < MOST_STEPS and perf_counter() < self._until:
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
            if not self._is_late():
                self._agent.facts.add("turn", id=name, state="begun")
                yield from self._turn_of(name)
        for name, step_ms in list(self._dropped.items()):
            if not self._is_late() and self._step_ms < MUCH_SHORTER * step_ms:
                yield from self._turn_of(name)

    def _turn_of(self, name):
        turn = self._switches.get(name)
        if turn is None or self._report.state(name) == "refused":
            return  # the fact `fix` says why
        measured = self._under_way = Measured(name)
        yield from self._pairs_of(turn, measured)
        if self._is_late() and not is_decided(measured.ratios()):
            return
        kept = self._tell(measured)
        if kept:
            turn(True)
        else:
            self._dropped[name] = middle(measured.ms[False])
        self._step_ms = middle(measured.ms[kept])
        self._under_way, self._is_first = None, False

    def _tell(self, measured):
        """What was measured, and whether the fix is kept."""
        kept = not self._has_given_up(measured.fix) and pays(measured.ratios())
        self._agent.facts.add("turn", id=measured.fix, state="measured", kept=kept, without_ms=measured.ms[False], with_ms=measured.ms[True], once_s=measured.once_s(),
                              without_ns=measured.ends_ns[False], with_ns=measured.ends_ns[True])
        return kept

    def _program_ends(self):
        if self._is_first and self._under_way is not None and len(self._under_way.ratios()) >= SIGN_PAIRS:
            self._tell(self._under_way)

    def _pairs_of(self, turn, measured):
        """The pairs of one fix."""
        is_on = False
        for pair in range(self._most_pairs):
            for on in (False, True) if pair % 2 == 0 else (True, False):
                started = self._now()
                if on != is_on:
                    turn(on)
                    is_on = on
                is_first_use = on and pair == 0
                yield FIRST_USE if is_first_use else SETTLE, 0
                settled = self._now()
                yield LEAST_STEPS, self._seconds
                ended = self._now()
                measured.ms[on].append((ended - settled) * 1e3 / self._steps)
                measured.ends_ns[on] += [int(1e9 * moment) for moment in (settled if is_first_use else started, ended)]
                if is_first_use:
                    measured.first_use_s = settled - started
            if is_decided(measured.ratios()) or self._is_late() or self._has_given_up(measured.fix):
                break
        if is_on:
            turn(False)

    def _has_given_up(self, name):
        """Whether the fix itself has found out that it is not for this training."""
        return self._report.state(name) in ("refused", "undone")

    def _is_late(self):
        return perf_counter() > self._deadline

    def _now(self):
        """The time when all work that was given to the GPU is done."""
        if self._torch.cuda.is_initialized():
            self._torch.cuda.synchronize()
        return perf_counter()


class Measured:
    """The pairs of one fix: how long a step is in each half, off and on, and when these halves began and ended."""

    def __init__(self, fix):
        self.fix = fix
        self.ms = {False: [], True: []}
        self.ends_ns = {False: [], True: []}
        self.first_use_s = 0.0

    def ratios(self):
        """How many times as fast, pair by pair: the machine may be at another pace from pair to pair."""
        return [off / on for off, on in zip(self.ms[False], self.ms[True])]

    def once_s(self):
        """What its first use took beyond usual steps."""
        return max(0.0, self.first_use_s - FIRST_USE * middle(self.ms[True]) / 1e3)


def is_decided(ratios):
    """Whether no other pair is needed. Chance alone keeps a fix that does nothing in 1 case of 18."""
    slower = sum(ratio <= 1 for ratio in ratios)
    told_by_signs = len(ratios) >= SIGN_PAIRS and (slower > MOST_SLOWER or is_faster(ratios))
    return told_by_signs or is_clear(ratios) or is_clear([1 / ratio for ratio in ratios])


def pays(ratios):
    """Whether it was faster beyond noise, and by as much as is worth it."""
    return is_faster(ratios) and middle(ratios) >= LEAST_SPEEDUP


def is_clear(ratios):
    """Faster by far, again and again, and by about as much."""
    return len(ratios) >= CLEAR_PAIRS and min(ratios) >= CLEAR_SPEEDUP and max(ratios) <= CLEAR_SPREAD * min(ratios)


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
