"""The backward pass. Tensor.backward looks torch.autograd.backward up each time, so one hook sees both, and sees each once."""

import inspect
from time import perf_counter_ns as now

from ..agent import EVALUATING, LOSS, OFF, VARYING
from ..recorder import BACKWARD, BACKWARD_PASS


PARAMETERS = ["tensors", "grad_tensors", "retain_graph", "create_graph", "grad_variables", "inputs"]


def install(agent, torch, inputs, actions, evaluations, steps):
    """Hooks torch.autograd.backward."""
    close_look = CloseLook(agent, inputs, actions, evaluations, steps)

    def make(original):
        known = list(inspect.signature(original).parameters) == PARAMETERS
        return make_backward(agent, original, close_look) if known else close_look.make_backward(original)

    agent.patches.replace(torch.autograd, "backward", make)

    def quicken():
        agent.patches.quicken(
            torch.autograd, "backward", lambda original, ours: agent.recorder.hook(BACKWARD_PASS, agent, original, ours)
        )

    agent.at_steady.append(quicken)


def make_backward(agent, original, close_look):
    """The hook of every backward pass. It names torch's parameters, because packing and unpacking them takes longer than the rest."""
    run = close_look.run

    def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False, grad_variables=None, inputs=None):
        if agent.detail or agent.in_backward:
            return run(original, (tensors, grad_tensors, retain_graph, create_graph, grad_variables, inputs), {})
        agent.in_backward = 1
        start = now()
        try:
            result = original(tensors, grad_tensors, retain_graph, create_graph, grad_variables, inputs)
        finally:
            agent.in_backward = 0
        agent.backward_ns += now() - start
        if agent.credits > 0:
            agent.credits -= 1
            agent.taken += agent.batch
        return result

    return backward


class CloseLook:
    """What a backward pass means outside the steady state."""

    def __init__(self, agent, inputs, actions, evaluations, steps):
        self._agent = agent
        self._inputs = inputs
        self._actions = actions
        self._evaluations = evaluations
        self._steps = steps

    def make_backward(self, original):
        """The hook where torch's parameters are not those known here."""

        def backward(*args, **kwargs):
            return self.run(original, args, kwargs)

        return backward

    def run(self, original, args, kwargs):
        """One backward pass; inner ones (activation checkpointing) belong to the outer one."""
        agent = self._agent
        if agent.in_backward or agent.detail & OFF or agent.trains_elsewhere():
            return original(*args, **kwargs)
        agent.guard(self._before, args, kwargs)
        agent.in_backward = 1
        start = now()
        try:
            result = original(*args, **kwargs)
        finally:
            agent.in_backward = 0
        actions = agent.guard(self._after, start, now())
        if actions:
            self._steps.stop_if_asked(actions)
        return result

    def _before(self, args, kwargs):
        """Opens the spool, ends an evaluation, keeps the loss."""
        agent = self._agent
        if not agent.ready():
            return
        if agent.detail & EVALUATING:
            self._evaluations.end()
        if agent.detail & LOSS:
            agent.detail &= ~LOSS
            self._actions.losses.keep(args[0] if args else kwargs.get("tensors"))

    def _after(self, start, end):
        """Records the pass and its samples."""
        agent = self._agent
        agent.tell(BACKWARD, start, end)
        agent.backwards += 1
        self._count_samples()
        return self._steps.after_backward()

    def _count_samples(self):
        agent = self._agent
        if not self._inputs.done:
            agent.samples(self._inputs.after_backward())
        elif agent.credits > 0:
            agent.credits -= 1
            sizes = self._inputs.sizes
            agent.samples(sizes.popleft() if agent.detail & VARYING and sizes else agent.batch)
