"""Gradients that are let go where the program fills them with zeros: the backward pass then writes what it would have added to zeros.

To the program and to its optimiser nothing changes: a parameter that the backward pass does not reach gets its zeros after it, or before an optimiser's step.
"""

import sys
import weakref

from .. import dynamo
from ..describe import optimizer_parameters

NAME = "gradients-to-none"
LOOKS = 8  # calls of zero_grad, as they are, in which each model or optimiser shows whether its gradients are held by something else


def to_none(tools, _):
    """`zero_grad(set_to_none=False)` of optimisers and modules."""
    torch, patches = tools.torch, tools.patches
    owed = Owed(torch)
    letting = Letting(tools, owed)
    patches.replace(torch.optim.Optimizer, "zero_grad", lambda original: letting.make(original, optimizer_parameters))
    patches.replace(torch.nn.Module, "zero_grad", lambda original: letting.make(original, lambda module: list(module.parameters())))

    def make_backward(original):
        def backward(*args, **kwargs):
            result = original(*args, **kwargs)
            owed.pay()
            return result

        return backward

    patches.replace(torch.autograd, "backward", make_backward)
    sys.modules["torch.optim.optimizer"].register_optimizer_step_pre_hook(lambda *_: owed.pay())
    patches.on_restore(letting.end)
    if tools.turns.takes(NAME, letting.turn):
        letting.turn(False)
    tools.report.waiting(NAME, "until gradients are filled with zeros")


class Owed:
    """Parameters whose gradients are zeros as far as the program can know."""

    def __init__(self, torch):
        self._torch = torch
        self._parameters = []

    def add(self, parameter):
        self._parameters.append(weakref.ref(parameter))

    def pay(self):
        """Zeros for those that still have none."""
        if not self._parameters:
            return
        parameters, self._parameters = self._parameters, []
        for reference in parameters:
            parameter = reference()
            if parameter is not None and parameter.grad is None:
                parameter.grad = self._torch.zeros_like(parameter)


class Letting:
    """Lets gradients go in the place of zero_grad, once nothing else turned out to hold them."""

    def __init__(self, tools, owed):
        self._torch = tools.torch
        self._report = tools.report
        self._is_tracing = dynamo.is_tracing(tools.torch)
        self._owed = owed
        self._is_on, self._has_given_up = True, False
        self._looks = weakref.WeakKeyDictionary()
        self._alone = holders_alone(tools.torch)

    def turn(self, on):
        self._is_on = on

    def make(self, original, parameters_of):
        def zero_grad(owner, set_to_none=True):
            if set_to_none or self._has_given_up or self._is_tracing():
                return original(owner, set_to_none)
            parameters = [parameter for parameter in parameters_of(owner) if parameter.grad is not None]
            if not self._may(owner, parameters) or not self._is_on:
                return original(owner, set_to_none)
            for parameter in parameters:
                parameter.grad = None
                self._owed.add(parameter)
            if parameters:
                self._report.in_force(NAME, type(owner).__name__)
            return None

        return zero_grad

    def _may(self, owner, parameters):
        looks = self._looks.get(owner, 0)
        if looks < LOOKS:
            self._looks[owner] = looks + 1 if parameters else looks
            why = self._why_not(parameters)
            if why:
                self._give_up(why)
            return False
        return not (parameters and parameters[0].is_cuda and self._torch.cuda.is_current_stream_capturing())

    def end(self):
        """Gradients are filled with zeros again, also by those who have got hold of a zero_grad of ours."""
        self._has_given_up = True
        self._owed.pay()

    def _give_up(self, why):
        """For all of them: what one keeps may be another's."""
        self.end()
        (self._report.undone if self._report.state(NAME) == "in-force" else self._report.refused)(NAME, why)

    def _why_not(self, parameters):
        torch = self._torch
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return "several processes train together, and share their gradients where these lie"
        gradients = [parameter.grad for parameter in parameters]
        if any(type(gradient) is not torch.Tensor or gradient.dtype != parameter.dtype or gradient.layout != torch.strided or gradient.requires_grad
               for gradient, parameter in zip(gradients, parameters)):  # fmt: skip
            return "its gradients are of another kind than its parameters"
        del gradients
        return "the program keeps gradients, and expects them to change" if are_held(torch, parameters, self._alone) else ""


def are_held(torch, parameters, alone):
    """Whether something else than their parameters holds gradients, or the memory in which they lie."""
    holders_of_storage = {}
    for parameter in parameters:
        of_object, of_storage, storage = holders(torch, parameter)
        if of_object > alone[0]:
            return True
        count, _ = holders_of_storage.get(storage, (0, 0))
        holders_of_storage[storage] = (count + 1, of_storage)
    return any(held > alone[1] + count - 1 for count, held in holders_of_storage.values())


def holders(torch, parameter):
    """How many hold the gradient of a parameter, as seen from here, and its memory; and which memory that is."""
    gradient = parameter.grad
    storage = gradient.untyped_storage()._cdata
    return sys.getrefcount(gradient), torch._C._storage_Use_Count(storage), storage


def holders_alone(torch):
    """The same where nobody else holds it."""
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.zeros(1)
    return holders(torch, parameter)[:2]
