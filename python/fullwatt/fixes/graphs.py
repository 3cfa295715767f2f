"""CUDA graphs around the call of a model: its forward pass is one launch, its backward pass another, where they were hundreds.

A graph repeats what it captured with the addresses it captured: inputs are copied in, what comes out is copied before it is given away. It serves only calls that are
like the captured one; all others run as they are. Now and then the model is called as it is, too, and what it returns must be the same: the program may have changed what
no graph sees, such as a number in an object that is no module.
"""

import math
import weakref

from . import clipping
from .captured import Captured, Watch, drops_between_layers, is_on_gpu
from .model_state import State
from .models import GRAPH, Refused, hooks_of
from .random_state import can_draw_from_a_copy, gpu_draws_from_a_copy
from .tensor_tree import TensorTree

NAME = "cuda-graphs"
ALIKE = 3  # calls in a row with the same inputs before one is captured
AUDIT_EVERY = 500  # calls
ODD_INPUTS = "it is called with something else than tensors on the GPU and plain values"
MOST_CAPTURES = 10  # anew, because of seeds
MOST_DIFFERENCE = {False: 0.02, True: 0.1}  # of what float32 returns, and what half precision does; other algorithms round otherwise


def cuda_graphs(tools, _):
    """A layer around all others, so that what they do is captured, too."""
    torch, all_models = tools.torch, weakref.WeakSet()

    def make(module, call):
        why = why_not(torch, module)
        if why:
            raise Refused(why)
        graphed = Graphed(tools, module, call, all_models)
        all_models.add(graphed)
        return graphed

    tools.models.add(NAME, GRAPH, make)
    clipping.in_one_piece(tools)


def why_not(torch, module):
    """Why a model cannot be captured; empty when it may be tried."""
    parameters = list(module.parameters())
    if not all(map(is_on_gpu, parameters)) or len({parameter.device for parameter in parameters}) != 1:
        return "its parameters are not on one GPU"
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return "several processes train together"
    if any(buffer.requires_grad for buffer in module.buffers()):
        return "it has a buffer that is trained"
    if drops_between_layers(torch, module) and not can_draw_from_a_copy(torch):
        return "before torch 2.4 nobody can see where cuDNN's dropout between recurrent layers draws from"
    return hooks_of(module)


class Graphed:
    """The call of one model, among those of all."""

    def __init__(self, tools, module, call, all_models=()):
        self._tools = tools
        self._all_models = all_models
        self._torch = tools.torch
        self._module = module
        self._plain = call
        self._last, self._alike = None, 0
        self._captured = {}  # by what is turned on inside
        self._watch, self._captures = None, 0
        self._is_off = False

    def __call__(self, *args, **kwargs):
        if self._is_off or not self._torch.is_grad_enabled() or not self._module.training or not self._tools.models.all_seen():
            return self._plain(*args, **kwargs)
        inside, call = self._tools.models.turned_on(), Call(self._torch, self._plain, args, kwargs)
        captured = self._captured.get(inside)
        if captured is not None and call.key == captured.key:
            if not captured.fits():
                return self._give_up("the program has changed the model since: moved parameters, froze some, or set an attribute", call)
            if captured.is_outdated():
                return self._begin_again(inside, call)
            return call.as_it_is() if captured.is_busy() else self._replay(captured, call)
        self._alike = self._alike + 1 if (inside, call.key) == self._last else 1
        self._last = inside, call.key
        if captured is not None or self._alike < ALIKE:
            return call.as_it_is()
        return self._capture(inside, call)

    def _capture(self, inside, call):
        try:
            why = self._tools.models.first_passes.why_no_graph or call.why_not
            if why:
                raise Refused(why)
            self._watch = self._watch or Watch(self._tools, self._module)
            captured = Captured(self._tools, self._module, self._watch, self._plain, call.key, call.arguments())
        except Exception as error:
            return self._give_up(str(error) if isinstance(error, Refused) else "capturing failed: %s" % str(error).strip().split("\n")[0][:200], call)
        self._captured[inside] = captured
        result = self._replay(captured, call)
        if not self._is_off:
            self._tools.report.in_force(NAME, "around " + type(self._module).__name__)
        return result

    def _begin_again(self, inside, call):
        """Without the graph until it may be captured anew."""
        self._captures += 1
        if self._captures > MOST_CAPTURES:
            return self._give_up("the program seeds the GPU's random numbers again and again, and its recurrent layers drop by them", call)
        del self._captured[inside]
        self._last, self._alike = (inside, call.key), 1
        return call.as_it_is()

    def _replay(self, captured, call):
        if captured.replays % AUDIT_EVERY == 0 and self._torch.cuda.mem_get_info()[0] > captured.bytes:
            return self._audited(captured, call)
        return captured.replay(call.tensors)

    def _audited(self, captured, call):
        """The graph beside the model as it is. Where they differ, the model must agree with itself for that to tell anything."""
        before = State(self._torch, self._module)
        expected, again = self._only_returned(call), self._only_returned(call)
        result = captured.replay(call.tensors)
        found = difference(self._torch, flat(self._torch, result), expected)
        if found <= MOST_DIFFERENCE[self._is_half(expected)] or difference(self._torch, again, expected) > found / 2:
            return result
        before.restore()
        return self._give_up("the graph is %.0f %% off what the model returns, which depends on something that no graph sees" % min(100 * found, 1000), call)

    def _only_returned(self, call):
        """What the model returns as it is, and nothing else of that pass."""
        before = State(self._torch, self._module)
        try:
            with gpu_draws_from_a_copy(self._torch):
                return flat(self._torch, call.as_it_is())
        finally:
            before.restore()

    def _is_half(self, tensors):
        return self._torch.is_autocast_enabled() or any(tensor.is_floating_point() and tensor.dtype.itemsize < 4 for tensor in tensors)

    def _give_up(self, why, call):
        self._is_off, self._captured = True, {}
        report = self._tools.report
        if not any(model.has_graph() for model in self._all_models):
            (report.undone if report.state(NAME) == "in-force" else report.refused)(NAME, why)
        return call.as_it_is()

    def has_graph(self):
        return bool(self._captured)


class Call:
    """One call of a model."""

    def __init__(self, torch, plain, args, kwargs):
        self._torch = torch
        self._plain, self._args, self._kwargs = plain, args, kwargs
        self.why_not, rest = "", None
        self.tensors = args
        if kwargs or not args or any(type(value) is not torch.Tensor for value in args):
            tree = self.arguments()
            self.tensors, rest = tree.tensors, tree.rest()
            if not tree.tensors or not tree.is_plain() or any(type(tensor) is not torch.Tensor for tensor in tree.tensors):
                self.why_not = ODD_INPUTS
        if not all(map(is_on_gpu, self.tensors)):
            self.why_not = ODD_INPUTS
        self.key = None if self.why_not else (signature(torch, self.tensors), rest)  # what must be the same for a graph to be right

    def arguments(self):
        """All that the model is given."""
        return TensorTree(self._torch, (self._args, self._kwargs))

    def as_it_is(self):
        """Without a graph."""
        return self._plain(*self._args, **self._kwargs)


def signature(torch, tensors):
    """All of them but their numbers, and how autocast stands."""
    each = tuple((value.shape, value.stride(), value.dtype, value.device, value.requires_grad) for value in tensors)
    return each, torch.is_autocast_enabled() and autocast_dtype(torch)


def autocast_dtype(torch):
    """Before torch 2.4 there was one function for each kind of device."""
    return torch.get_autocast_dtype("cuda") if hasattr(torch, "get_autocast_dtype") else torch.get_autocast_gpu_dtype()


def flat(torch, result):
    """The tensors of what a model returns, without the way they were computed."""
    return [tensor.detach() for tensor in TensorTree(torch, result).tensors]


def difference(torch, found, expected):
    """By how much the one result differs from the other, as a share of it: the largest of all its tensors of floating-point numbers."""
    most = 0.0
    for one, other in zip(found, expected):
        size = float(torch.linalg.vector_norm(other, dtype=torch.float64)) if other.is_floating_point() else 0.0
        if 0 < size < math.inf:
            share = float(torch.linalg.vector_norm(one - other, dtype=torch.float64)) / size
            most = max(most, math.inf if math.isnan(share) else share)
    return most
