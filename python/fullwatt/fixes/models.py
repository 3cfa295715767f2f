"""Fixes around the call of a model. Every outermost module gets one function in front of its call; nothing in the module changes but the order of its weights.

Torch itself has the place for that function: `_compiled_call_impl`, which Module.compile() sets, and which copies and pickles leave out.
"""

import sys

from ..weak import Known
from .optimizers import Layouts

GRAPH, INPUT, PRECISION, COMPILER = range(4)  # from the outside in


class Models:
    """The outermost modules of the program and the layers around their calls."""

    def __init__(self, torch, inputs, report, turns, is_refused):
        self._torch = torch
        self._inputs = inputs
        self._report = report
        self._turns = turns
        self._is_refused = is_refused
        self._layers = {}
        self._turning = []  # those that take turns
        self._known = Known()
        inputs.at_module.append(self._found)

    def add(self, name, place, make, prepare=None):
        """A layer: `make(module, call)` gives the call that stands in front, or raises Refused; `prepare(module, on)` changes the module itself."""
        layer = Layer(name, make, prepare)
        layer.takes_turns = self._turns.takes(name, layer.turn)
        if layer.takes_turns:
            self._turning.append(layer)
        self._layers[place] = layer
        self._report.waiting(name, "until a model is called")

    def program_compiles(self):
        """Whether the program itself has called torch.compile."""
        return self._inputs.compiler_in_use

    def turned_on(self):
        """Which layers are in force now, of those that take turns: what was captured with some of them says nothing of others."""
        return tuple(layer.is_on for layer in self._turning)

    def all_seen(self):
        """Whether the first steps are over, in which models are looked for."""
        return self._inputs.done

    def _found(self, module):
        if self._known.get(module) is not None or not self._layers or self._is_refused():
            return
        self._known.put(module, True)
        why = why_not(self._torch, module)
        call, inner = getattr(module, "_compiled_call_impl", None) or module._call_impl, None
        for place in sorted(self._layers, reverse=True):
            layer = self._layers[place]
            try:
                if why:
                    raise Refused(why)
                call = inner = layer.around(module, call)
                if place not in (COMPILER, GRAPH):  # these come later
                    self._report.in_force(layer.name, "around " + type(module).__name__)
            except Refused as reason:
                if self._report.state(layer.name) != "in-force":
                    self._report.refused(layer.name, str(reason))
        if inner is not None:
            module._compiled_call_impl = inner


class Layer:
    """One change of the call of models, which a trial may turn on and off."""

    def __init__(self, name, make, prepare):
        self.name = name
        self.takes_turns = False
        self._make = make
        self._prepare = prepare or (lambda module, on: None)
        self._modules = []
        self.is_on = False

    def around(self, module, call):
        """The call with the change, or one that chooses."""
        changed = self._make(module, call)
        if not self.takes_turns:
            self._prepare(module, True)
            return changed
        self._modules.append(module)

        def one_of_both(*args, **kwargs):
            return (changed if self.is_on else call)(*args, **kwargs)

        return one_of_both

    def turn(self, on):
        """For all models that were seen."""
        self.is_on = on
        for module in self._modules:
            self._prepare(module, on)


class Refused(Exception):
    """Why a fix is not for this model."""


def why_not(torch, module):
    """Why the call of a module cannot be changed at all; empty when it can."""
    kind = type(module)
    if isinstance(module, torch.jit.ScriptModule):
        return "%s is TorchScript" % kind.__name__
    if not hasattr(module, "_compiled_call_impl"):
        return "this PyTorch has no place for it"
    if any("__call__" in vars(base) for base in kind.__mro__ if base is not torch.nn.Module and issubclass(base, torch.nn.Module)):
        return "%s has a __call__ of its own" % kind.__name__
    return ""


def hooks_of(module):
    """Why hooks of a model stand in the way of a change of its passes; empty when it has none."""
    if any(part._forward_hooks or part._forward_pre_hooks or part._backward_hooks or part._backward_pre_hooks for part in module.modules()):
        return "it has hooks"
    return "its parameters have hooks" if any(parameter._backward_hooks for parameter in module.parameters()) else ""


def each_tensor(torch, value, change):
    """The same structure with every tensor changed."""
    if isinstance(value, torch.Tensor):
        return change(value)
    return torch.utils._pytree.tree_map(lambda leaf: change(leaf) if isinstance(leaf, torch.Tensor) else leaf, value)


def channels_last(tools, _):
    """Convolutions over images whose channels lie beside each other, as tensor cores want them."""
    torch, layouts = tools.torch, Layouts(tools)

    def make(module, call):
        layers = [layer for layer in module.modules() if isinstance(layer, (torch.nn.Conv2d, torch.nn.ConvTranspose2d))]
        if not layers:
            raise Refused("it has no two-dimensional convolution")
        if type(module).__name__ in ("DistributedDataParallel", "FullyShardedDataParallel"):
            raise Refused("%s has laid out its gradients already" % type(module).__name__)
        return in_channels_last(torch, call)

    def prepare(module, on):
        module.to(memory_format=torch.channels_last if on else torch.contiguous_format)
        layouts.follow()

    tools.models.add("channels-last", INPUT, make, prepare)


def in_channels_last(torch, call):
    """A call whose images come in that order, and whose results are in torch's usual one."""
    last, usual = torch.channels_last, torch.contiguous_format

    def come_in(tensor):
        return tensor.contiguous(memory_format=last) if tensor.dim() == 4 and tensor.is_floating_point() else tensor

    def go_out(tensor):
        return tensor.contiguous(memory_format=usual) if tensor.dim() == 4 else tensor

    def call_in_channels_last(*args, **kwargs):
        args, kwargs = each_tensor(torch, (args, kwargs), come_in)
        return each_tensor(torch, call(*args, **kwargs), go_out)

    return call_in_channels_last


def compile(tools, entry):
    """torch.compile around the model's call; where that fails the model runs as it is, and the reason is told."""
    options = {name: entry[name] for name in ("mode", "dynamic", "backend") if name in entry}

    def make(module, call):
        if tools.models.program_compiles():
            raise Refused("the program compiles by itself")
        return Compiled(tools, module, call, options)

    tools.models.add("compile", COMPILER, make)


class Compiled:
    """A call that is compiled once the agent has seen all models: the compiler would trace what looks at them."""

    def __init__(self, tools, module, call, options):
        self._tools = tools
        self._name = type(module).__name__
        self._is_torchs = is_torchs(module)
        self._plain = call
        self._options = options
        self._compiled = None
        self._is_told = False
        self._use = self._wait

    def __call__(self, *args, **kwargs):
        return self._use(*args, **kwargs)

    def _wait(self, *args, **kwargs):
        if not self._tools.models.all_seen():
            return self._plain(*args, **kwargs)
        self._compiled = self._tools.torch.compile(self._visible(), **self._options)
        self._use = self._compiled_or_plain
        return self._use(*args, **kwargs)

    def _compiled_or_plain(self, *args, **kwargs):
        try:
            result = self._compiled(*args, **kwargs)
        except self._tools.torch._dynamo.exc.TorchDynamoException as error:
            self._use = self._plain
            self._tools.report.refused("compile", "compiling failed: " + str(error).strip().split("\n")[0][:200])
            return self._plain(*args, **kwargs)
        if not self._is_told:
            self._is_told = True
            self._tools.report.in_force("compile", "around " + self._name)
        return result

    def _visible(self):
        """The compiler passes over functions of torch itself: a model that is one of torch's own modules needs a frame that it sees."""
        if not self._is_torchs:
            return self._plain
        return sys.modules["torch._dynamo.external_utils"].wrap_inline(self._plain)


def is_torchs(module):
    """Whether the forward pass of a module is torch's own code."""
    return type(module).forward.__module__.startswith("torch.")
