"""Torch's fused optimisers: one kernel for all parameters, in the place of one for each or for each kind; and what fast optimisers ask of the layout in memory."""

import sys
import weakref

from ..describe import optimizer_parameters
from ..weak import Known

STRIPPED = ("fused", "foreach")


def fused(tools, _):
    """In the first steps every optimiser that can is switched over; a hook that stayed would be traced by a compiler."""
    torch, report = tools.torch, tools.report
    switched = Known()
    module = sys.modules["torch.optim.optimizer"]  # torch.optim deletes the name

    def before_step(optimizer, *_):
        if switched.get(optimizer) is None and not tools.is_refused:
            switched.put(optimizer, True)
            tools.agent.attempt(switch, optimizer)

    def switch(optimizer):
        why = why_not(torch, optimizer)
        if why:
            if report.state("fused-optimizer") != "in-force":
                report.refused("fused-optimizer", why)
            return
        before = [{name: group.get(name) for name in STRIPPED} for group in optimizer.param_groups]
        if in_turns:
            found.append((optimizer, before))
            return
        fuse(torch, optimizer)
        optimizer._step_supports_amp_scaling = True
        keep_out_of_checkpoints(optimizer, before)
        report.in_force("fused-optimizer", type(optimizer).__name__)

    found = []

    def turn(on):
        for optimizer, before in found:
            fuse(torch, optimizer) if on else unfuse(torch, optimizer, before)

    in_turns = tools.turns.takes("fused-optimizer", turn)
    report.waiting("fused-optimizer", "until the first step")
    tools.agent.at_steady.append(module.register_optimizer_step_pre_hook(before_step).remove)


def why_not(torch, optimizer):
    """Why an optimiser has no fused form here; empty when it has."""
    name, parameters = type(optimizer).__name__, optimizer_parameters(optimizer)
    if not any(type(optimizer) is getattr(torch.optim, kind, None) for kind in ("Adam", "AdamW", "SGD", "Adagrad")):
        return "%s has no fused form" % name
    group = optimizer.param_groups[0]
    if "fused" not in group:
        return "%s has no fused form in torch %s" % (name, torch.__version__)
    if any(some.get("fused") for some in optimizer.param_groups):
        return "%s is fused already" % name
    if any(some.get("differentiable") or some.get("capturable") for some in optimizer.param_groups):
        return "%s is differentiable or capturable" % name
    devices = {parameter.device.type for parameter in parameters}
    if not devices <= supported(torch):
        return "there is none for parameters on " + ", ".join(sorted(devices))
    if not all(parameter.is_floating_point() for parameter in parameters):
        return "some of its parameters are no floating-point numbers"
    if any(parameter.grad is not None and parameter.grad.is_sparse for parameter in parameters):
        return "some of its gradients are sparse"
    return ""


def supported(torch):
    """The kinds of device that this torch has fused optimisers for."""
    try:
        from torch.utils._foreach_utils import _get_fused_kernels_supported_devices

        return set(_get_fused_kernels_supported_devices())
    except ImportError:
        return {"cuda"}


def fuse(torch, optimizer):
    """From the next step on."""
    for group in optimizer.param_groups:
        group.update(fused=True, foreach=False)
    move_steps(torch, optimizer, lambda parameter: parameter.device)
    lay_like_parameters(torch, optimizer)


def unfuse(torch, optimizer, before):
    """As the program had it."""
    for group, own in zip(optimizer.param_groups, before):
        group.update(own)
    move_steps(torch, optimizer, lambda parameter: torch.device("cpu"))


def move_steps(torch, optimizer, where):
    """A fused optimiser counts its steps on the parameters' device, another one on the CPU."""
    for parameter, state in optimizer.state.items():
        step = state.get("step")
        if isinstance(step, torch.Tensor):
            state["step"] = step.to(device=where(parameter), dtype=torch.float32)


class Layouts:
    """Optimisers whose parameters change their layout. Torch has fast ways only where gradients and moments lie in memory as their parameters do, and a fused one fails otherwise."""

    def __init__(self, tools):
        self._torch = tools.torch
        self._seen = weakref.WeakSet()
        module = sys.modules["torch.optim.optimizer"]  # torch.optim deletes the name
        tools.agent.at_steady.append(module.register_optimizer_step_pre_hook(lambda optimizer, *_: tools.agent.attempt(self._meet, optimizer)).remove)

    def _meet(self, optimizer):
        """Before its first step it may have moments of a checkpoint."""
        if optimizer not in self._seen:
            self._seen.add(optimizer)
            lay_like_parameters(self._torch, optimizer)

    def follow(self):
        """Parameters were laid out anew."""
        for optimizer in self._seen:
            lay_like_parameters(self._torch, optimizer)


def lay_like_parameters(torch, optimizer):
    """Gradients and moments, where they lie in another way."""
    for parameter in optimizer_parameters(optimizer):
        state = optimizer.state.get(parameter, {})
        for name, value in state.items():
            if lies_otherwise(torch, value, parameter):
                state[name] = laid_like(torch, value, parameter)
        if lies_otherwise(torch, parameter.grad, parameter):
            parameter.grad = laid_like(torch, parameter.grad, parameter)


def lies_otherwise(torch, tensor, parameter):
    return isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided and tensor.shape == parameter.shape and tensor.stride() != parameter.stride()


def laid_like(torch, tensor, parameter):
    return torch.empty_like(parameter, dtype=tensor.dtype, device=tensor.device, requires_grad=False).copy_(tensor)


def keep_out_of_checkpoints(optimizer, before):
    """A checkpoint has the settings that the program made."""
    if not hasattr(optimizer, "register_state_dict_post_hook"):
        return

    def restore(_, state):
        for group, own in zip(state.get("param_groups", ()), before):
            group.update(own)
        return state

    optimizer.register_state_dict_post_hook(restore)
