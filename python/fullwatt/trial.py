"""A trial of `fullwatt tune`: the program runs for some steps, with other seeds where asked, and ends without its own last lines.

FULLWATT_TRIAL holds JSON: `seed_offset` is added to every seed that the program sets, `losses` asks for the loss of every step, `tries` is the fix that it is for
(where that is refused there is nothing to measure), `lengths` and `longest` are told in longest.py. Without windows (FULLWATT_WINDOWS=off) and with FULLWATT_STEPS for its end, or FULLWATT_ENOUGH_SECONDS where steps are long.
"""

import itertools
import json
import os
import random
import sys
from time import perf_counter_ns as now

from . import longest
from .agent import LOSS, torch_distributed
from .facts import ITEM_LIMIT
from .fixes.report import REFUSED
from .fixes.target import Target
from .fixes.turns import NoTurns, Turns
from .measure import Losses, leave_to_parent
from .weak import Known

MOST_SEEDS = 1 << 63
FAR = 1_000_003  # so that a seed that was moved is none that the program gives itself, such as the number of an epoch


def options():
    """What the trial is to be, or None outside of one."""
    text = os.environ.get("FULLWATT_TRIAL")
    return json.loads(text) if text else None


def install(torch, agent, inputs, actions, steps, evaluations):
    """Has the agent do its part of a trial."""
    wanted = options()
    if wanted is None:
        return
    steps.stop = lambda: stop(agent)
    Target(torch, agent, inputs).tell()
    agent.at_end.append(lambda: tell_files(agent))
    evaluations.at_turn.append(actions.memory.turn)
    longest.install(torch, agent, wanted)
    if wanted.get("losses"):
        actions.losses = EveryLoss(agent, torch)
        agent.detail |= LOSS
    if "seed_offset" in wanted:
        shift_seeds(torch, agent, int(wanted["seed_offset"]))


def tell_files(agent):
    """Which files the program consists of: a tuning that was cut off does not go on with others."""
    named = (getattr(module, "__dict__", {}).get("__file__") for module in list(sys.modules.values()))
    files = sorted({agent.sites.absolute(file) for file in named if isinstance(file, str) and agent.sites.is_user(file)})
    for first in range(0, len(files), ITEM_LIMIT):
        agent.facts.add("program", files=files[first:first + ITEM_LIMIT])


def turns(torch, agent):
    """What makes the turns of this trial's fixes, given their report."""
    wanted = options() or {}

    def make(report):
        if "tries" in wanted:
            agent.at_steady.append(lambda: report.state(wanted["tries"]) == REFUSED and is_alone() and stop(agent))
        return Turns(torch, agent, report, wanted["turns"], lambda: stop(agent)) if "turns" in wanted else NoTurns()

    return make


def is_alone():
    """No other process would wait for this one."""
    return (torch_distributed("get_world_size") or 1) == 1


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


def shift_seeds(torch, agent, offset):
    """Another seed for the same program, so that its losses show what chance alone does to them: each seed that it sets is moved, and those that it never sets are known.

    Generators of the program's own, with a seed of their own, are moved only where they decide the order of the samples. `torch.Generator().manual_seed(n)`,
    `numpy.random.default_rng(n)`, `numpy.random.RandomState(n)` and `random.Random(n)` as often make or choose the samples themselves, and nothing tells these
    uses apart; with other samples the losses would differ by more than chance, and a worse fix would pass. Besides, the last two are classes, which
    programs ask objects for and derive from, and the first is a method of a class in C.
    """
    patches = agent.patches

    def make(original):
        def seed(value=None, *args, **kwargs):
            return original(value + offset if isinstance(value, int) else value, *args, **kwargs)

        return seed

    torch.manual_seed(offset)
    random.seed(offset)
    for owner, name in ((torch, "manual_seed"), (torch.random, "manual_seed"), (torch.cuda, "manual_seed"), (torch.cuda, "manual_seed_all"), (random, "seed")):
        patches.replace(owner, name, make)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(offset)
        patches.replace(numpy.random, "seed", make)
        patches.replace(numpy.random, "default_rng", lambda original: known_generator(torch, original, offset))
    if offset:
        orders = Orders(torch, offset)
        patches.replace(torch.utils.data.DataLoader, "__iter__", lambda original: orders.beginning(original, agent))


def known_generator(torch, original, offset):
    """numpy.random.default_rng without a seed, which would be another one at each start; worker processes have a seed of torch's each."""
    made = itertools.count()

    def default_rng(seed=None):
        return original(seed if seed is not None else [offset, torch.initial_seed(), next(made)])

    return default_rng


class Orders:
    """Moves the seeds of what decides in which order a loader gives its samples for training."""

    def __init__(self, torch, offset):
        self._torch = torch
        self._offset = offset
        self._moved = []  # generators, and the seed that each was given: they have no weak references
        self._samplers = Known()

    def beginning(self, original, agent):
        def __iter__(loader):
            if self._torch.is_grad_enabled():
                agent.attempt(self._move, loader)
            return original(loader)

        return __iter__

    def _move(self, loader):
        batches = loader.batch_sampler
        for owner in (loader, loader.sampler, batches, getattr(batches, "sampler", None)):
            if isinstance(getattr(owner, "generator", None), self._torch.Generator):
                self._move_generator(owner.generator)
            if isinstance(owner, self._torch.utils.data.DistributedSampler) and self._samplers.get(owner) is None:
                self._samplers.put(owner, True)
                owner.seed += self._offset

    def _move_generator(self, generator):
        """Once, and again where the program has given it a seed since."""
        place = next((place for place, (known, _) in enumerate(self._moved) if known is generator), len(self._moved))
        if place < len(self._moved) and self._moved[place][1] == generator.initial_seed():
            return
        generator.manual_seed((generator.initial_seed() + FAR * self._offset) % MOST_SEEDS)
        self._moved[place:place + 1] = [(generator, generator.initial_seed())]
