"""What happens when the spool is opened, when the warm-up is over, and when the process ends."""

import atexit
import os
import sys

from .. import cost, settings, stacks
from ..agent import BEFORE_TRAINING, rank, torch_distributed
from ..recorder import MEASURED, WORKER
from ..sites import main_file
from .declared import WARM_UP


def install(agent, torch, actions, steps, fetches):
    """Has the agent do these things."""
    startup = Startup(agent, torch, actions, fetches)
    agent.at_open.append(startup.opened)
    agent.at_end.append(startup.ended)
    steps.warm_up_over = startup.warm_up_over


class Startup:
    """Beginning and end of the record of one process."""

    def __init__(self, agent, torch, actions, fetches):
        self._agent = agent
        self._torch = torch
        self._actions = actions
        self._fetches = fetches
        self._stacks = None
        self._step_cost_ns = None

    def opened(self, role):
        """The spool is open."""
        agent = self._agent
        agent.facts.add("process", **self._process(role))
        self._stacks = agent.guard(stacks.install, agent)
        atexit.register(agent.end)
        in_child = sys.modules.get("multiprocessing.process")
        if in_child is not None and getattr(in_child, "parent_process", lambda: None)() is not None:
            from multiprocessing import util

            util.Finalize(None, agent.end, exitpriority=0)
        if role == WORKER:
            agent.patches.restore(BEFORE_TRAINING)
        else:
            agent.facts.add("environment", values=settings.environment())

    def _process(self, role):
        torch = self._torch
        return {
            "pid": os.getpid(),
            "parent": os.getppid(),
            "role": "worker" if role == WORKER else "trainer",
            "rank": rank(),
            "local_rank": _number("LOCAL_RANK"),
            "world_size": torch_distributed("get_world_size") or _number("WORLD_SIZE") or 1,
            "argv": list(getattr(sys, "argv", [])),
            "executable": sys.executable,
            "python": sys.version.split()[0],
            "main": main_file(),
            "prefixes": self._agent.sites.prefixes(),
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "cudnn": _cudnn(torch),
        }

    def warm_up_over(self, batches_per_step, backwards_per_step):
        """Hooks that were needed at the beginning go, the recorder's take over the others, and what these cost is measured."""
        agent = self._agent
        agent.patches.restore(WARM_UP)
        self._fetches.stop()
        for action in agent.at_steady:
            action()
        self._step_cost_ns = cost.of_step(agent, batches_per_step, backwards_per_step)
        agent.recorder.cost(self._step_cost_ns)
        agent.recorder.flag(MEASURED)

    def ended(self):
        """The process ends, or the agent does."""
        agent = self._agent
        if agent.steps:
            self._actions.tell_settings("end")
            agent.facts.add("agent", errors=agent.errors, off=None, step_cost_ns=self._step_cost_ns)
        stacks.remove_if_empty(self._stacks)


def _number(variable):
    text = os.environ.get(variable, "")
    return int(text) if text.isdigit() else None


def _cudnn(torch):
    """The version, without loading cuDNN for it."""
    try:
        return torch._C._cudnn.getVersionInt() if hasattr(torch._C, "_cudnn") and torch.cuda.is_initialized() else None
    except Exception:
        return None
