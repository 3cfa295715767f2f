"""Steps from the moment torch.compile is called: the compiler would trace torch's step hooks into its graphs.

It ignores the profiler range that torch puts around every step, so that range tells when a step begins and ends.
"""

import sys

from .. import dynamo
from .optimizer import GROUP as HOOKS

RANGE = "Optimizer.step#"
GROUP = "profiler ranges"


class CompiledSteps:
    """Other ways to the same two hooks."""

    def __init__(self, agent, torch, steps):
        self._agent = agent
        self._torch = torch
        self._steps = steps
        self._open = []  # ranges that were entered, with their optimisers
        agent.at_fork.append(self._open.clear)

    def use_ranges(self):
        """Takes the hooks out of the compiler's sight."""
        patches, record_function = self._agent.patches, self._torch.autograd.profiler.record_function
        if patches.has(GROUP):
            return
        patches.restore(HOOKS)
        patches.replace(record_function, "__enter__", self._make_enter, GROUP)
        patches.replace(record_function, "__exit__", self._make_exit, GROUP)

    def use_classes(self):
        """Early compilers strip torch's own optimisers of hooks and ranges: there the step itself is hooked."""
        for value in list(vars(self._torch.optim).values()):
            step = vars(value).get("step") if isinstance(value, type) else None
            is_stripped = getattr(step, "hooked", False) and step.__code__.co_name != "wrapper"
            if is_stripped and not getattr(step, "_is_fullwatt", False):
                self._agent.patches.replace(value, "step", self._make_step)._is_fullwatt = True

    def _make_step(self, original):
        steps, compiling = self._steps, dynamo.is_tracing(self._torch)

        def step(self, *args, **kwargs):
            if compiling():
                return original(self, *args, **kwargs)
            changed = steps.before(self, (self,) + args, kwargs)
            arguments, options = ((self,) + args, kwargs) if changed is None else changed
            result = original(*arguments, **options)
            steps.after(self, (), {})
            return result

        return step

    def _make_enter(self, original):
        ranges = self

        def __enter__(self):
            result = original(self)
            if self.name.startswith(RANGE):
                ranges._agent.guard(ranges._entered, self, sys._getframe(1))
            return result

        return __enter__

    def _entered(self, range_, frame):
        """The optimiser is a local of torch's function around the step; its closure is in a dictionary that can be changed."""
        names = frame.f_locals
        optimizer, kwargs = names.get("self"), names.get("kwargs")
        if optimizer is None:
            return
        changed = self._steps.before(optimizer, (optimizer,), kwargs or {})
        if changed is not None and kwargs:
            kwargs.update(changed[1])
        self._open.append((id(range_), optimizer))

    def _make_exit(self, original):
        ranges = self

        def __exit__(self, kind, value, trace):
            result = original(self, kind, value, trace)
            if self.name.startswith(RANGE) and ranges._open:
                ranges._left(id(self), kind is None)
            return result

        return __exit__

    def _left(self, range_, in_order):
        while self._open:
            number, optimizer = self._open.pop()
            if number == range_ and in_order:
                self._steps.after(optimizer, (), {})
            elif not in_order and not self._open:
                self._agent.stepping = self._agent.inner_steps = 0
            if number == range_:
                return
