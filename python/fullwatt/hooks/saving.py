"""torch.save: checkpoints stand between the steps."""

import os
from time import perf_counter_ns as now

from ..recorder import SAVE, SAVED


def install(agent, torch):
    """Hooks torch.save."""

    def make(original):
        def save(*args, **kwargs):
            start = now()
            result = original(*args, **kwargs)
            agent.guard(record, start, now(), args[1] if len(args) > 1 else kwargs.get("f"))
            return result

        return save

    def record(start, end, target):
        if not agent.ready(may_open=False):
            return
        seconds = (end - start) / 1e9
        agent.tell(SAVE, start, end)
        agent.recorder.flag(SAVED)
        agent.attempt(lambda: agent.facts.add("save", site=agent.sites.here(), bytes=size(target), seconds=seconds))

    agent.patches.replace(torch, "save", make)


def size(target):
    """Bytes of the file that was written, where it is one."""
    try:
        return os.path.getsize(target) if isinstance(target, (str, os.PathLike)) else target.tell()
    except Exception:
        return None
