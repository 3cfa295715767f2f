"""A trial of `fullwatt tune`: the program runs for some steps, with other seeds where asked, and ends without its own last lines.

FULLWATT_TRIAL holds JSON: `seed_offset` is added to every seed that the program sets, `losses` asks for the loss of every step. Without windows
(FULLWATT_WINDOWS=off) and with FULLWATT_STEPS for its end.
"""

import json
import os
import random
import sys
from time import perf_counter_ns as now

from .agent import LOSS
from .fixes.target import Target
from .fixes.turns import NoTurns, Turns
from .measure import Losses, leave_to_parent


def options():
    """What the trial is to be, or None outside of one."""
    text = os.environ.get("FULLWATT_TRIAL")
    return json.loads(text) if text else None


def install(torch, agent, inputs, actions, steps):
    """Has the agent do its part of a trial."""
    wanted = options()
    if wanted is None:
        return
    steps.stop = lambda: stop(agent)
    Target(torch, agent, inputs).tell()
    if wanted.get("losses"):
        actions.losses = EveryLoss(agent, torch)
        agent.detail |= LOSS
    if "seed_offset" in wanted:
        shift_seeds(torch, agent.patches, int(wanted["seed_offset"]))


def turns(torch, agent):
    """What makes the turns of this trial's fixes, given their report."""
    wanted = (options() or {}).get("turns")
    return lambda report: Turns(torch, agent, report, wanted, lambda: stop(agent)) if wanted else NoTurns()


def stop(agent):
    """Here and now: whatever the program does at its end, such as saving, is none of a trial's business."""
    agent.end()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
    os._exit(0)


class EveryLoss(Losses):
    """Keeps the loss of every backward pass where it is, and reads all of them at the end, so that no step waits."""

    def __init__(self, agent, torch):
        super().__init__(agent, torch)
        self._kept = []  # (loss, at_ns, step)
        agent.at_end.append(self._tell)

    def keep(self, tensors):
        """Keeps a copy on the loss's own device."""
        value = self.value_in(tensors)
        if value is not None:
            self._kept.append((value.clone(), now(), self._agent.steps + 1))
        self._agent.detail |= LOSS

    def _forked(self):
        super()._forked()
        leave_to_parent(self._kept)
        self._kept = []

    def _tell(self):
        kept, self._kept = self._kept, []
        for value, at_ns, step in kept:
            self.write(float(value), at_ns, step)


def shift_seeds(torch, patches, offset):
    """Another seed for the same program: each that it sets is moved, and those that it never sets are known."""

    def make(original):
        def seed(value=None, *args, **kwargs):
            return original(value + offset if isinstance(value, int) else value, *args, **kwargs)

        return seed

    torch.manual_seed(offset)
    random.seed(offset)
    for owner, name in ((torch, "manual_seed"), (torch.cuda, "manual_seed"), (torch.cuda, "manual_seed_all"), (random, "seed")):
        patches.replace(owner, name, make)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(offset)
        patches.replace(numpy.random, "seed", make)
        patches.replace(numpy.random, "default_rng", make)
