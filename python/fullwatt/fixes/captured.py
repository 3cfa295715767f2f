"""The passes of one model as two CUDA graphs, with the memory that these read and write."""

import contextlib
import typing
import weakref

from .model_state import State, objects_in
from .models import Refused
from .random_state import gpu_draws_from_a_copy
from .tensor_tree import TensorTree

KIND = "cuda"  # of the device that has graphs
WARM_UP = 3  # passes before the capture, in which libraries choose their algorithms and workspaces


class Captured:
    """Two graphs and their memory."""

    def __init__(self, tools, module, watch, call, key, arguments):
        self.key = key
        self._torch = torch = tools.torch
        self._patches = tools.patches
        self._watch = watch
        self._module = module
        self._parameters = [parameter for parameter in module.parameters()]
        self._trained = [parameter for parameter in self._parameters if parameter.requires_grad]
        if not self._trained or any(not parameter.is_floating_point() for parameter in self._trained):
            raise Refused("it has nothing to train, or parameters that are no floating-point numbers")
        self._addresses = addresses(self._parameters)
        self._inputs = [value.detach().clone().requires_grad_(value.requires_grad) for value in arguments.tensors]
        self._arguments = arguments.with_tensors(self._inputs)
        self._returned = None  # the tree of what a pass returns
        self._left = []  # what it leaves behind besides that
        self._rest = None  # of these, what is no tensor
        self.replays = 0
        self._pending = None  # a weak reference to the last pass whose gradients are still to come
        before = self._before = State(torch, module)
        reserved = torch.cuda.memory_reserved()
        try:
            with Standing(torch, module) as standing:
                self._capture(call, [standing.of(parameter) for parameter in self._trained])
                if standing.have_moved():
                    raise Refused("it moves its parameters in memory")
        finally:
            torch.clear_autocast_cache()  # what was cast in the graph lies in its memory
            changed = before.restore(self._left)
        if changed:
            raise Refused(changed)
        self.bytes = torch.cuda.memory_reserved() - reserved  # at most
        self._function = make_function(torch, self)
        self._changes_seen = watch.changes
        self._seedings_seen = watch.seedings if drops_between_layers(torch, module) else None

    def _capture(self, call, trained):
        torch = self._torch
        wanted = [value for value in self._inputs if value.requires_grad] + trained
        with gpu_draws_from_a_copy(torch):
            self._warm_up(call, wanted)
        pool = torch.cuda.graph_pool_handle()
        self._forward, self._backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        # Weights that were cast outside of the graph would stay as they are. To cast none ahead would be another state of autocast, for which models are compiled anew.
        torch.clear_autocast_cache()
        # Other threads, such as one that pins batches, may call CUDA meanwhile.
        with torch.cuda.graph(self._forward, pool=pool, capture_error_mode="thread_local"):
            self._outputs = self._pass(call)
        self._with_gradient = [number for number, output in enumerate(self._outputs) if output.requires_grad]
        ends = [self._outputs[number] for number in self._with_gradient]
        self._output_gradients = [torch.zeros_like(output) for output in ends]
        with torch.cuda.graph(self._backward, pool=pool, capture_error_mode="thread_local"):
            gradients = torch.autograd.grad(ends, wanted, self._output_gradients, allow_unused=True)
            self._kept = [gradient for gradient in gradients if gradient is not None]
            self._joined = torch.cat([gradient.reshape(-1) for gradient in self._kept]) if can_join(self._kept) else None
        self._has_gradient = [gradient is not None for gradient in gradients]
        self._outputs = [output.detach() for output in self._outputs]

    def _warm_up(self, call, wanted):
        """Passes on another stream, which also show what the model does besides computing."""
        torch = self._torch
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        versions = [value._version for value in self._inputs]
        with torch.cuda.stream(stream):
            for number in range(WARM_UP):
                torch.clear_autocast_cache()
                with self._reads_nothing_left() if number == WARM_UP - 1 else contextlib.nullcontext():
                    outputs = self._pass(call)
                ends = [output for output in outputs if output.requires_grad]
                gradients = torch.autograd.grad(ends, wanted + self._trained, [torch.ones_like(output) for output in ends], allow_unused=True)
                if any(gradient is not None for gradient in gradients[len(wanted):]):
                    raise Refused("it keeps its parameters outside of its modules, too")
                del outputs, ends, gradients
        torch.cuda.current_stream().wait_stream(stream)
        if [value._version for value in self._inputs] != versions:
            raise Refused("it changes its inputs")

    def _pass(self, call):
        """All tensors that come out of the model: those that it returns, and behind them those that it leaves in attributes."""
        args, kwargs = self._arguments
        places = [vars(owner) for owner in self._owners()]
        before = list(map(dict, places))
        returned = TensorTree(self._torch, call(*args, **kwargs))
        changed = [(values, name, value) for values, old in zip(places, before) for name, value in values.items() if value is not old.get(name)]
        left = [Left(values, name, TensorTree(self._torch, value)) for values, name, value in changed]
        self._returned, self._left = returned, [part for part in left if part.tree.tensors and part.tree.is_plain()]
        outputs = returned.tensors + [tensor for part in self._left for tensor in part.tree.tensors]
        if not returned.tensors or not returned.is_plain() or not all(map(is_on_gpu, outputs)):
            raise Refused("it returns something else than tensors on the GPU, or leaves such in its attributes")
        rest, self._rest = self._rest, [returned.rest(), *[(part.name, part.tree.rest()) for part in self._left]]
        if rest is not None and rest != self._rest:
            raise Refused("it returns other numbers each time, or leaves such in its attributes")
        return outputs

    def _owners(self):
        """Whose attributes a pass may set."""
        return [*self._module.modules(), *objects_in(self._torch, self._module)]

    @contextlib.contextmanager
    def _reads_nothing_left(self):
        """A pass may leave tensors behind for others, but not read what the one before has left: a graph would read the same again and again."""
        values = [left.value() for left in self._left]  # as long as they are there no other object has their id
        names = {id(value): left.name for value, left in zip(values, self._left)}
        places = {id(left.values) for left in self._left}
        read, group = [], "what a pass has left"

        def make(original):
            def __getattribute__(self, name):
                value = original(self, name)
                if id(value) in names:
                    read.append(names[id(value)])
                return value

            return __getattribute__

        try:
            for kind in {type(owner) for owner in self._owners() if id(vars(owner)) in places}:
                self._patches.replace(kind, "__getattribute__", make, group)
            yield
        finally:
            self._patches.restore(group)
            values.clear()
        if read:
            raise Refused("it goes on from what its last pass has left in %s" % read[0])

    def fits(self):
        """Whether the model is what it was: parameters where they were, as many of them trained, and the same attributes."""
        if self._watch.changes != self._changes_seen and self._before.is_changed(self._left):
            return False
        self._changes_seen = self._watch.changes
        return addresses(self._parameters) == self._addresses

    def is_outdated(self):
        """Whether another capture is needed: cuDNN may draw from other memory by now."""
        return self._seedings_seen is not None and self._seedings_seen != self._watch.seedings

    def is_busy(self):
        """Whether the memory is still needed: a pass before this one waits for its gradients."""
        pending = self._pending() if self._pending is not None else None
        return pending is not None and not pending.is_over

    def replay(self, inputs):
        """What the model would return; what it would leave in attributes is put there."""
        self.replays += 1
        outputs = iter(self._function.apply(*inputs, *self._trained))
        returned = self._returned.with_tensors(outputs)
        for values, name, tree in self._left:
            values[name] = tree.with_tensors(outputs)
        return returned

    def forward(self, pass_, inputs):
        """Runs the first graph; gives copies."""
        self._pending = pass_
        for mine, value in zip(self._inputs, inputs):
            if mine.data_ptr() != value.data_ptr():
                mine.copy_(value)
        self._forward.replay()
        return tuple(output.clone() for output in self._outputs)

    def backward(self, gradients):
        """Runs the second one; gives the gradients of the inputs and of the parameters, copied."""
        for number, mine in zip(self._with_gradient, self._output_gradients):
            if gradients[number] is None:
                mine.zero_()
            else:
                mine.copy_(gradients[number])
        self._backward.replay()
        given = iter(self._copies())
        all_wanted = iter([next(given) if has else None for has in self._has_gradient])
        inputs = [next(all_wanted) if value.requires_grad else None for value in self._inputs]
        return tuple(inputs + list(all_wanted))

    def _copies(self):
        """They are added into the program's gradients, or become these: what the graph writes next must not change them."""
        if self._joined is None:
            return [gradient.clone() for gradient in self._kept]
        return self._torch._utils._unflatten_dense_tensors(self._joined.clone(), self._kept)

    def number_of_inputs(self):
        return len(self._inputs)

    def without_gradient(self, outputs):
        return [output for number, output in enumerate(outputs) if number not in self._with_gradient]


class Left(typing.NamedTuple):
    """What a pass leaves in an attribute: one or more tensors."""

    values: dict  # of all attributes there
    name: str
    tree: TensorTree

    def value(self):
        """What is there now."""
        return self.values[self.name]


class Watch:
    """Counts what the program does to a model that captured passes may not survive."""

    def __init__(self, tools, module):
        torch, patches = tools.torch, tools.patches
        self.changes = 0  # attributes of a module that were set to something else, and what was registered there
        self.seedings = 0  # of the GPU's random numbers
        self._watched = {id(part) for part in module.modules()}
        for name in ("__setattr__", "__delattr__", "register_buffer", "register_parameter", "add_module"):
            patches.replace(torch.nn.Module, name, self._counting_changes)
        for owner in (torch.cuda, torch.cuda.random):
            for name in ("manual_seed", "manual_seed_all", "seed", "seed_all", "set_rng_state"):
                patches.replace(owner, name, self._counting_seedings)

    def _counting_changes(self, original):
        watch = self

        def changes(self, *args, **kwargs):
            is_news = id(self) in watch._watched and not (len(args) == 2 and vars(self).get(args[0], watch) is args[1])
            original(self, *args, **kwargs)
            watch.changes += is_news

        return changes

    def _counting_seedings(self, original):
        def seeds(*args, **kwargs):
            self.seedings += 1
            return original(*args, **kwargs)

        return seeds


def drops_between_layers(torch, module):
    """Whether cuDNN drops numbers between its recurrent layers. The memory for that is made anew when the GPU's random numbers are seeded."""
    return any(isinstance(part, torch.nn.RNNBase) and part.dropout > 0 for part in module.modules())


def is_on_gpu(tensor):
    return tensor.device.type == KIND


def can_join(gradients):
    """Whether one copy does for all."""
    return len({gradient.dtype for gradient in gradients}) == 1 and all(gradient.is_contiguous() for gradient in gradients)


def addresses(parameters):
    return [(parameter.data_ptr(), parameter.requires_grad) for parameter in parameters]


class Standing:
    """In the place of each parameter another one over the same memory. The parameters' own nodes of autograd may still belong to a pass of the program, on its
    stream, and a capture must not wait for another stream."""

    def __init__(self, torch, module):
        self._recurrent = [part for part in module.modules() if isinstance(part, torch.nn.RNNBase)]
        self._places = [(part, name, parameter) for part in module.modules() for name, parameter in part._parameters.items() if parameter is not None]
        self._others = {id(parameter): torch.nn.Parameter(parameter.detach(), parameter.requires_grad) for _, _, parameter in self._places}

    def of(self, parameter):
        return self._others[id(parameter)]

    def __enter__(self):
        for part, name, parameter in self._places:
            setattr(part, name, self.of(parameter))
        self._lie_where_they_lay()
        return self

    def __exit__(self, *_):
        for part, name, parameter in self._places:
            setattr(part, name, parameter)
        self._lie_where_they_lay()

    def have_moved(self):
        """Whether the model has put them elsewhere: what it computes then knows nothing of the program's own."""
        return any(self.of(parameter).data_ptr() != parameter.data_ptr() for _, _, parameter in self._places)

    def _lie_where_they_lay(self):
        """Recurrent modules move weights that they do not know into memory of their own."""
        for part in self._recurrent:
            if hasattr(part, "_flat_weight_refs"):
                part._flat_weight_refs = [weakref.ref(weight) if weight is not None else None for weight in part._flat_weights]


class Pass:
    """One forward pass, until its gradients are computed or nobody can ask for them any more."""

    def __init__(self):
        self.is_over = False


def make_function(torch, captured):
    """The step of autograd that stands for the model."""

    class GraphedModel(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *values):
            ctx.fullwatt_pass = Pass()
            outputs = captured.forward(weakref.ref(ctx.fullwatt_pass), values[:captured.number_of_inputs()])
            ctx.mark_non_differentiable(*captured.without_gradient(outputs))
            return outputs

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, *gradients):
            if ctx.fullwatt_pass.is_over:
                raise RuntimeError("fullwatt: the gradients of a model in a CUDA graph can be computed once only; leave the fix cuda-graphs out of the plan")
            ctx.fullwatt_pass.is_over = True
            return captured.backward(gradients)

    return GraphedModel
