"""Fixes around the call of a model. Every outermost module gets one function in front of its call; nothing in the module changes but the order of its weights.

Torch itself has the place for that function: `_compiled_call_impl`, which Module.compile() sets, and which copies and pickles leave out.
"""

import sys
import weakref

from ..weak import Known
from .first_passes import FirstPasses
from .model_state import State
from .outputs import Unreachable

GRAPH, INPUT, PRECISION, COMPILER = range(4)  # from the outside in; all but PRECISION tell themselves when they are in force


class Models:
    """The outermost modules of the program and the layers around their calls."""

    def __init__(self, tools, inputs):
        self._tools = tools
        self._torch = tools.torch
        self._inputs = inputs
        self._report = tools.report
        self._turns = tools.turns
        self._layers = {}
        self._turning = []  # those that take turns
        self._known = Known()
        self._changed = []  # weak references to each model and to the call in front of its own, and the names of its layers
        self.first_passes = FirstPasses(tools, inputs, self._refuse)
        inputs.at_module.append(self._found)
        tools.agent.at_look.append(self._look)

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
        if self._known.get(module) is not None or not self._layers or self._tools.is_refused:
            return
        self._known.put(module, True)
        why = why_not(self._torch, module)
        call, inner, names = getattr(module, "_compiled_call_impl", None) or module._call_impl, None, []
        for place in sorted(self._layers, reverse=True):
            layer = self._layers[place]
            try:
                if why:
                    raise Refused(why)
                call = inner = layer.around(module, call)
                names.append(layer.name)
                if place == PRECISION:
                    self._report.in_force(layer.name, "around " + type(module).__name__)
            except Refused as reason:
                if self._report.state(layer.name) != "in-force":
                    self._report.refused(layer.name, str(reason))
        if inner is not None:
            module._compiled_call_impl = inner
            self._changed.append((weakref.ref(module), weakref.ref(inner), names))

    def leave(self, module, name, tell, why):
        """A model goes without this layer from now on: `tell(name, why)` is for the last one."""
        for known, _, names in self._changed:
            if known() is module and name in names:
                names.remove(name)
        if not any(name in names for known, _, names in self._changed if known() is not None):
            tell(name, why)

    def _refuse(self):
        """What the first passes show to be impossible needs no try."""
        for place, why in ((GRAPH, self.first_passes.why_no_graph), (COMPILER, self.first_passes.why_no_compiler)):
            if why and place in self._layers:
                self._report.refused(self._layers[place].name, why)

    def _look(self):
        """Whether the calls are still where they were put."""
        for known, inner, names in self._changed:
            module = known()
            if module is not None and names and module._compiled_call_impl is not inner():
                for name in [name for name in names if self._report.state(name) == "in-force"]:
                    self.leave(module, name, self._report.undone, "the program has compiled %s, or put another call in its place" % type(module).__name__)


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
        own = getattr(changed, "own", call)

        def one_of_both(*args, **kwargs):
            return (changed if self.is_on else own)(*args, **kwargs)

        return one_of_both

    def turn(self, on):
        """For all models that were seen."""
        self.is_on = on
        for module in self._modules:
            self._prepare(module, on)


class Refused(Exception):
    """Why a fix is not for this model."""


class Fixed:
    """The changed call of a model, with results that look as before. Where they cannot, the model is called once more, as it is, and so from then on."""

    def __init__(self, tools, name, module, own, changed, look_as_before, undo=lambda: None):
        self._tools, self._name, self._module = tools, name, module
        self.own = own
        self._changed = changed
        self._look_as_before = look_as_before  # takes what the changed call returned
        self._undo = undo
        self._seen = set()  # whether the model trains and whether with gradients: each may return something else
        self.is_off = False

    def __call__(self, *args, **kwargs):
        if self.is_off:
            return self.own(*args, **kwargs)
        before = self._before()
        result = self._changed(*args, **kwargs)
        try:
            return self._look_as_before(result)
        except Exception as error:
            self.is_off = True
            self._tools.agent.attempt(self._give_up, error, before)
        return self.own(*args, **kwargs)

    def _before(self):
        """The model before a call of a new kind; None at all others."""
        kind = self._module.training, self._tools.torch.is_grad_enabled()
        if kind in self._seen:
            return None
        self._seen.add(kind)
        return self._tools.agent.attempt(State, self._tools.torch, self._module)

    def _give_up(self, error, before):
        self._undo()
        if before is not None:
            before.restore()
        why = str(error) if isinstance(error, Unreachable) else "what it returns cannot be changed: %s" % type(error).__name__
        self._tools.models.leave(self._module, self._name, self._tools.report.refused, why)


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
        self._module = module
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
        self._use = self._plain
        if not self._tools.models.first_passes.why_no_compiler:
            try:
                self._compiled = self._tools.torch.compile(self._visible(), **self._options)
                keep_passes()
                self._use = self._compiled_or_plain
            except Exception as error:  # no such backend, or no compiler for this Python
                self._refuse(error)
        return self._use(*args, **kwargs)

    def _compiled_or_plain(self, *args, **kwargs):
        try:
            result = self._compiled(*args, **kwargs)
        except self._tools.torch._dynamo.exc.TorchDynamoException as error:
            self._use = self._plain
            self._refuse(error)
            return self._plain(*args, **kwargs)
        if not self._is_told:
            self._is_told = True
            self._tools.report.in_force("compile", "around " + type(self._module).__name__)
        return result

    def _refuse(self, error):
        self._tools.models.leave(self._module, "compile", self._tools.report.refused, "compiling failed: " + str(error).strip().split("\n")[0][:200])

    def _visible(self):
        """The compiler passes over functions of torch itself: a model that is one of torch's own modules needs a frame that it sees."""
        if not self._is_torchs:
            return self._plain
        return sys.modules["torch._dynamo.external_utils"].wrap_inline(self._plain)


def keep_passes():
    """Since torch 2.6 what is compiled writes over what its forward pass has kept, and `backward(retain_graph=True)` is an error."""
    config = sys.modules.get("torch._functorch.config")
    if hasattr(config, "donated_buffer"):
        config.donated_buffer = False


def is_torchs(module):
    """Whether the forward pass of a module is torch's own code."""
    return type(module).forward.__module__.startswith("torch.")
