"""Applies a plan: each fix of it is put in place, watched, and told of by the fact `fix`. What the plan says was decided elsewhere."""

import json
import os

from ..agent import say
from ..patches import Patches
from . import accumulation, affinity, backward, batch, cache, channels_last, collector, copies, gradients, graphs, loaders, models, optimizers, precision, switches
from .as_written import AsWritten
from .report import Report
from .target import Target

# Every fix that this agent can apply, and what puts it in place, called with the Tools and its entry in the plan.
FIXES = {
    "tf32": switches.tf32,
    "cudnn-benchmark": switches.cudnn_benchmark,
    "anomaly-off": switches.anomaly_off,
    "threads": switches.threads,
    "affinity": affinity.affinity,
    "allocator": switches.allocator,
    "gc-freeze": collector.freeze,
    "bf16": precision.bf16,
    "fp16": precision.fp16,
    "channels-last": channels_last.channels_last,
    "compile": models.compile,
    "cuda-graphs": graphs.cuda_graphs,
    "backward-inline": backward.inline,
    "fused-optimizer": optimizers.fused,
    "gradients-to-none": gradients.to_none,
    "sample-cache": cache.sample_cache,
    "loader-workers": loaders.workers,
    "loader-pinned": loaders.pinned,
    "loader-prefetch": loaders.prefetch,
    "loader-persistent": loaders.persistent,
    "non-blocking": copies.non_blocking,
    "accumulation": accumulation.accumulation,
    "batch-size": batch.batch_size,
}


def install(torch, agent, inputs, turns):
    """Puts the fixes of the plan that FULLWATT_PLAN names in place. `turns(report)` leads those that take turns in a trial."""
    path = os.environ.get("FULLWATT_PLAN")
    if not path:
        return
    plan = read(path)
    tools = Tools(torch, agent, inputs, plan, turns)
    for entry in plan["fixes"]:
        if not tools.is_refused:
            apply(tools, entry)


class Tools:
    """What a fix works with. Its patches are not the agent's: an agent that turns itself off leaves the fixes in force."""

    def __init__(self, torch, agent, inputs, plan, turns):
        self.torch = torch
        self.agent = agent
        self.patches = Patches()
        self.report = Report(agent)
        self.is_refused = False
        self._fixes = [entry["id"] for entry in plan["fixes"]]
        Target(torch, agent, inputs).hold(plan.get("made_for", {}), self.refuse)
        self.turns = turns(self.report)
        self.models = models.Models(self, inputs)
        self.as_written = AsWritten(torch, self.patches)
        self.loaders = loaders.Loaders(self)

    def refuse(self, why):
        """The plan is for another training: everything goes back to how the program has it."""
        self.is_refused = True
        try:
            self.patches.restore()
        finally:
            for name in self._fixes:
                self.report.refused(name, why)
            self.report.close()
            say("the plan is refused: %s; the training goes on without it" % why)


def read(path):
    """The plan: `{"made_for": {…}, "fixes": [{"id": …, …}]}`."""
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def apply(tools, entry):
    """One fix; if it cannot be put in place the training goes on without it."""
    name = entry["id"]
    make = FIXES.get(name)
    if make is None:
        tools.report.refused(name, "this version of fullwatt does not know it")
        return
    try:
        make(tools, entry)
    except Exception as error:
        tools.report.refused(name, "%s: %s" % (type(error).__name__, error))
