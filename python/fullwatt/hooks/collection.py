"""Full collections of Python's garbage collector; the young generations cost little and are let pass."""

import gc
from time import perf_counter_ns as now

from ..recorder import GARBAGE

OLDEST = 2


def install(agent):
    """Has the collector call us."""
    begun = [0]

    def collected(phase, info):
        if info["generation"] != OLDEST:
            return
        if phase == "start":
            begun[0] = now()
        elif begun[0]:
            start, begun[0] = begun[0], 0
            agent.guard(agent.phase, GARBAGE, start, 0)

    def forget():
        if collected in gc.callbacks:
            gc.callbacks.remove(collected)

    gc.callbacks.append(collected)
    agent.patches.on_restore(forget)
