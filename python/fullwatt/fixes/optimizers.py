"""Torch's fused optimisers: one kernel for all parameters, in the place of one for each or for each kind; and what fast optimisers ask of the layout in memory."""

import sys
import weakref

from ..describe import optimizer_parameters
from ..weak import Known

NAME = "fused-optimizer"
STRIPPED = ("fused", "foreach")
SCALES = "_step_supports_amp_scaling"  # by this torch's gradient scaler knows who unscales gradients himself


def fused(tools, _):
    """In the first steps every optimiser that can is switched over; a hook that stayed would be traced by a compiler."""
    fusing = Fusing(tools)
    module = sys.modules["torch.optim.optimizer"]  # torch.optim deletes the name
    tools.agent.at_steady.append(module.register_optimizer_step_pre_hook(fusing.before_step).remove)
    tools.agent.at_look.append(fusing.look)
    tools.patches.replace(tools.torch.optim.Optimizer, "add_param_group", fusing.adding)
    tools.report.waiting(NAME, "until the first step")


class Fusing:
    """The optimisers that were switched over, and what the program has set for each of their groups."""

    def __init__(self, tools):
        self._tools, self._torch, self._report = tools, tools.torch, tools.report
        self._seen = Known()
        self._own = weakref.WeakKeyDictionary()
        self._turning = []
        self._takes_turns = tools.turns.takes(NAME, self._turn)

    def before_step(self, optimizer, *_):
        """A step of an optimiser that may be a new one."""
        if self._seen.get(optimizer) is None and not self._tools.is_refused:
            self._seen.put(optimizer, True)
            self._tools.agent.attempt(self._switch, optimizer)

    def _switch(self, optimizer):
        why = "%s is fused already" % type(optimizer).__name__ if is_fused(optimizer, any) else why_not(self._torch, optimizer)
        if why:
            if self._report.state(NAME) != "in-force":
                self._report.refused(NAME, why)
            return
        if self._takes_turns:
            self._turning.append((optimizer, settings_of(optimizer)))
            return
        self._own[optimizer] = settings_of(optimizer)
        self._fuse(optimizer)
        keep_out_of_checkpoints(optimizer, self._own[optimizer])
        if hasattr(optimizer, "register_load_state_dict_post_hook"):
            optimizer.register_load_state_dict_post_hook(lambda optimizer: self._regrouped(self._loaded, optimizer))
        self._report.in_force(NAME, type(optimizer).__name__)

    def _turn(self, on):
        for optimizer, own in self._turning:
            fuse(self._torch, optimizer) if on else unfuse(self._torch, optimizer, own)

    def _fuse(self, optimizer):
        fuse(self._torch, optimizer)
        setattr(optimizer, SCALES, True)

    def _regrouped(self, follow, optimizer):
        """Its groups are others. Unless all of them turn out fused, a gradient scaler of the program's must not leave its part to it, whatever becomes of the agent."""
        if optimizer in self._own:
            vars(optimizer).pop(SCALES, None)
            self._tools.agent.attempt(follow, optimizer)

    def _loaded(self, optimizer):
        """A checkpoint brings settings, and counts its steps where they were counted when it was written; what else it holds is the same for both forms."""
        self._own[optimizer][:] = settings_of(optimizer)
        why = why_not(self._torch, optimizer)
        if why:
            self._lose(optimizer, "the program has loaded a state, and " + why)
        else:
            self._fuse(optimizer)

    def adding(self, original):
        """add_param_group: a new group is like the others, or none of them can stay fused."""

        def add_param_group(optimizer, *args, **kwargs):
            original(optimizer, *args, **kwargs)
            self._regrouped(self._added, optimizer)

        return add_param_group

    def _added(self, optimizer):
        own = self._own[optimizer]
        own.extend(settings_of(optimizer)[len(own):])
        why = why_not(self._torch, optimizer)
        if why:
            unfuse(self._torch, optimizer, own)
            self._lose(optimizer, "the program has added parameters, and " + why)
        else:
            self._fuse(optimizer)

    def _lose(self, optimizer, why):
        """It is not fused any more, and a checkpoint has what it has."""
        vars(optimizer).pop(SCALES, None)
        self._own.pop(optimizer).clear()
        if not self._own:
            self._report.undone(NAME, why)

    def look(self):
        """Whether the program has set something else."""
        for optimizer in list(self._own):
            if not is_fused(optimizer, all):
                self._lose(optimizer, "the program has set fused to something else")


def is_fused(optimizer, how_many):
    """Whether any or all of its groups are."""
    return how_many(group.get("fused") for group in optimizer.param_groups)


def settings_of(optimizer):
    return [{name: group.get(name) for name in STRIPPED} for group in optimizer.param_groups]


def why_not(torch, optimizer):
    """Why an optimiser has no fused form here; empty when it has."""
    name, parameters = type(optimizer).__name__, optimizer_parameters(optimizer)
    if not any(type(optimizer) is getattr(torch.optim, kind, None) for kind in ("Adam", "AdamW", "SGD", "Adagrad")):
        return "%s has no fused form" % name
    group = optimizer.param_groups[0]
    if "fused" not in group:
        return "%s has no fused form in torch %s" % (name, torch.__version__)
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
        self._tools = tools
        self._torch = tools.torch
        self._seen = weakref.WeakSet()
        module = sys.modules["torch.optim.optimizer"]  # torch.optim deletes the name
        tools.agent.at_steady.append(module.register_optimizer_step_pre_hook(lambda optimizer, *_: tools.agent.attempt(self._meet, optimizer)).remove)

    def _meet(self, optimizer):
        """Before its first step it may have moments of a checkpoint."""
        if optimizer not in self._seen and not self._tools.is_refused:
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
