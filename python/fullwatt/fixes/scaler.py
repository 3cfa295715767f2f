"""A gradient scaler that the program does not see: gradients are scaled while a backward pass computes them, and are the program's own again when it is over, so that
clipping, accumulation and logging find what they would find without it. A step whose gradients overflowed is left out."""

import sys
import weakref

from ..describe import optimizer_parameters
from .models import Refused, hooks_of

NAME = "fp16"
FIRST_SCALE, GROWTH, BACKOFF, GROWTH_STEPS = 65536.0, 2.0, 0.5, 2000  # as torch.amp.GradScaler has them


class Scaler:
    """One for all models of the program."""

    def __init__(self, tools):
        self.is_due = False  # a pass in float16 waits for its gradients, or these for their step
        self._why_off = ""
        self._torch = tools.torch
        self._report = tools.report
        self._models, self._optimizers = weakref.WeakSet(), weakref.WeakSet()
        self._scale = self._grown = self._overflowed = None
        self._is_stepped = False  # an optimiser has used the gradients of the last backward pass
        self._is_fresh = False  # a pass was made since
        self._is_in_step = False
        self._is_lent = False  # a fused optimiser has our flag of an overflow
        self._set_aside = []
        tools.patches.replace(self._torch.optim.Optimizer, "__init__", self._noting)
        tools.patches.replace(self._torch.autograd, "backward", self._scaling)
        tools.patches.replace(self._torch.autograd, "grad", self._ending)
        scalers = self._torch.amp if hasattr(self._torch.amp, "GradScaler") else self._torch.cuda.amp  # torch 2.3 moved it
        tools.patches.replace(scalers.GradScaler, "scale", self._yielding)
        module = sys.modules["torch.optim.optimizer"]  # torch.optim deletes the name
        tools.patches.on_restore(module.register_optimizer_step_pre_hook(self._before_step).remove)
        tools.patches.on_restore(module.register_optimizer_step_post_hook(self._after_step).remove)

    def know(self, module):
        """A model whose passes will be in float16."""
        why = self._why_off or hooks_of(module)
        if why:
            raise Refused(why)
        if type(module).__name__ in ("FullyShardedDataParallel", "FSDPModule") or len({parameter.device for parameter in module.parameters()}) > 1:
            raise Refused("its parameters are spread over several devices")
        self._models.add(module)

    def may_pass(self, inputs):
        """Whether a pass may be in float16; it will be asked for gradients unless they are turned off."""
        if self._why_off:
            return False
        if self._torch.is_grad_enabled():
            if any(isinstance(value, self._torch.Tensor) and value.requires_grad and value.is_leaf for value in inputs):
                self._stop("the program asks for gradients of its inputs, which would stay scaled")
                return False
            self.is_due = self._is_fresh = True
        return True

    def _noting(self, original):
        def __init__(optimizer, *args, **kwargs):
            original(optimizer, *args, **kwargs)
            self._optimizers.add(optimizer)

        return __init__

    def _scaling(self, original):
        def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False, *args, **kwargs):
            if self._is_stepped and not self._is_fresh:
                self.is_due = False
            if not self.is_due or self._must_stop(create_graph):
                return original(tensors, grad_tensors, retain_graph, create_graph, *args, **kwargs)
            roots = [tensors] if isinstance(tensors, self._torch.Tensor) else list(tensors)
            given = [grad_tensors] if isinstance(grad_tensors, self._torch.Tensor) else list(grad_tensors or [None] * len(roots))
            parameters = self._parameters()
            self._begin(roots[0].device)
            for gradients in self._gradients(parameters):
                self._torch._foreach_mul_(gradients, self._scale)
            scaled = [self._scaled(root, gradient) for root, gradient in zip(roots, given)]
            try:
                original(roots, scaled, retain_graph, create_graph, *args, **kwargs)
            finally:  # a program may go on after a pass that ran out of memory
                inverse = self._scale.double().reciprocal().float()
                for gradients in self._gradients(parameters):
                    self._torch._amp_foreach_non_finite_check_and_unscale_(gradients, self._overflowed, inverse)

        return backward

    def _ending(self, original):
        """What torch.autograd.grad returns goes straight to the program."""
        def grad(*args, **kwargs):
            if self.is_due:
                self._stop("the program asks torch.autograd.grad for gradients, which would not be scaled")
            return original(*args, **kwargs)

        return grad

    def _yielding(self, original):
        """A program that scales its gradients itself skips steps itself, too: the two would not know of each other."""
        def scale(scaler, *args, **kwargs):
            if scaler.is_enabled() and not self._why_off:
                self._stop("the program scales its gradients itself")
            return original(scaler, *args, **kwargs)

        return scale

    def _must_stop(self, create_graph):
        if create_graph:
            return self._stop("the program differentiates its gradients")
        if self._is_in_step:
            return self._stop("an optimiser computes gradients within its step")
        if any(parameter._backward_hooks for parameter in self._parameters()):
            return self._stop("its parameters have hooks, which would see scaled gradients")
        return False

    def _stop(self, why):
        self._why_off, self.is_due = why, False
        self._report.undone(NAME, why)
        return True

    def _begin(self, device):
        """Before a backward pass: the scale follows what the last steps found."""
        torch = self._torch
        if self._scale is None:
            self._scale = torch.full((), FIRST_SCALE, device=device)
            self._grown = torch.zeros((), dtype=torch.int32, device=device)
            self._overflowed = torch.zeros((), device=device)
        elif self._is_stepped:
            torch._amp_update_scale_(self._scale, self._grown, self._overflowed, GROWTH, BACKOFF, GROWTH_STEPS)
            self._overflowed.zero_()
        self._is_stepped = False

    def _scaled(self, root, gradient):
        if not root.requires_grad:
            return gradient
        return (self._torch.ones_like(root) if gradient is None else gradient) * self._scale.to(root.dtype)

    def _parameters(self):
        """All that gradients may be added to, each once."""
        found = {id(parameter): parameter for model in self._models for parameter in model.parameters()}
        for optimizer in self._optimizers:
            found.update((id(parameter), parameter) for parameter in optimizer_parameters(optimizer))
        return list(found.values())

    def _gradients(self, parameters):
        """Those that are there, by dtype."""
        kinds = {}
        for parameter in parameters:
            gradient = parameter.grad
            if gradient is not None:
                kinds.setdefault(gradient.dtype, []).append(gradient._values() if gradient.is_sparse else gradient)
        return kinds.values()

    def _before_step(self, optimizer, *_):
        self._is_in_step = True
        if not self.is_due:
            return
        if all(group.get("fused") for group in optimizer.param_groups):
            optimizer.grad_scale, optimizer.found_inf, self._is_lent = None, self._overflowed, True
        elif self._overflowed.item():
            self._set_aside = [(parameter, parameter.grad) for parameter in optimizer_parameters(optimizer)]
            for parameter, _ in self._set_aside:
                parameter.grad = None

    def _after_step(self, optimizer, *_):
        """What was set aside is put back: the program may look at it, and clears it itself."""
        self._is_in_step = False
        for parameter, gradient in self._set_aside:
            parameter.grad = gradient
        self._set_aside = []
        if self._is_lent:
            del optimizer.grad_scale, optimizer.found_inf
            self._is_lent = False
        self._is_stepped, self._is_fresh = self.is_due, False
