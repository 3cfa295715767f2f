"""CUDA graphs around the call of a model: its forward pass is one launch, its backward pass another, where they were hundreds.

A graph repeats what it captured with the addresses it captured: inputs are copied in, what comes out is copied before it is given away. It serves only calls that are
like the captured one; all others run as they are.
"""

import weakref

from . import clipping
from .model_state import State
from .models import GRAPH, Refused, hooks_of

NAME = "cuda-graphs"
ALIKE = 3  # calls in a row with the same inputs before one is captured
WARM_UP = 3  # passes before the capture, in which libraries choose their algorithms and workspaces


def cuda_graphs(tools, _):
    """A layer around all others, so that what they do is captured, too."""
    torch = tools.torch

    def make(module, call):
        why = why_not(torch, module)
        if why:
            raise Refused(why)
        return Graphed(tools, module, call)

    tools.models.add(NAME, GRAPH, make)
    clipping.in_one_piece(tools)


def why_not(torch, module):
    """Why a model cannot be captured; empty when it may be tried."""
    parameters = list(module.parameters())
    if {parameter.device.type for parameter in parameters} != {"cuda"} or len({parameter.device for parameter in parameters}) != 1:
        return "its parameters are not on one GPU"
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return "several processes train together"
    if any(buffer.requires_grad for buffer in module.buffers()):
        return "it has a buffer that is trained"
    return hooks_of(module)


class Graphed:
    """The call of one model."""

    def __init__(self, tools, module, call):
        self._tools = tools
        self._torch = tools.torch
        self._module = module
        self._plain = call
        self._last, self._alike = None, 0
        self._captured = {}  # by what is turned on inside
        self._is_off = False

    def __call__(self, *args, **kwargs):
        if self._is_off or kwargs or not self._torch.is_grad_enabled() or not self._module.training or not self._tools.models.all_seen():
            return self._plain(*args, **kwargs)
        inside = self._tools.models.turned_on()
        key, captured = signature(self._torch, args), self._captured.get(inside)
        if captured is not None and key == captured.key:
            if not captured.fits():
                return self._give_up("the program has changed the model since: moved parameters, froze some, or set an attribute", args)
            return self._plain(*args) if captured.is_busy() else captured.replay(args)
        self._alike = self._alike + 1 if (inside, key) == self._last else 1
        self._last = inside, key
        if key is None or captured is not None or self._alike < ALIKE:
            return self._plain(*args)
        return self._capture(inside, key, args)

    def _capture(self, inside, key, args):
        try:
            captured = Captured(self._torch, self._module, self._plain, key, args)
            watch(self._tools, self._module, captured)
        except Exception as error:
            return self._give_up(str(error) if isinstance(error, Refused) else "capturing failed: %s" % str(error).strip().split("\n")[0][:200], args)
        self._captured[inside] = captured
        self._tools.report.in_force(NAME, "around " + type(self._module).__name__)
        return captured.replay(args)

    def _give_up(self, why, args):
        self._is_off, self._captured = True, {}
        report = self._tools.report
        (report.undone if report.state(NAME) == "in-force" else report.refused)(NAME, why)
        return self._plain(*args)


def signature(torch, args):
    """What must be the same for a graph to be right; None where it cannot be told."""
    if not args or not all(type(value) is torch.Tensor and value.is_cuda for value in args):
        return None
    inputs = tuple((value.shape, value.stride(), value.dtype, value.device, value.requires_grad) for value in args)
    return inputs, torch.is_autocast_enabled() and autocast_dtype(torch)


def autocast_dtype(torch):
    """Before torch 2.4 there was one function for each kind of device."""
    return torch.get_autocast_dtype("cuda") if hasattr(torch, "get_autocast_dtype") else torch.get_autocast_gpu_dtype()


class Captured:
    """Two graphs and the memory that they read and write."""

    def __init__(self, torch, module, call, key, args):
        self.key = key
        self._torch = torch
        self._parameters = [parameter for parameter in module.parameters()]
        self._trained = [parameter for parameter in self._parameters if parameter.requires_grad]
        if not self._trained or any(not parameter.is_floating_point() for parameter in self._trained):
            raise Refused("it has nothing to train, or parameters that are no floating-point numbers")
        self._addresses = addresses(self._parameters)
        self._inputs = [value.detach().clone().requires_grad_(value.requires_grad) for value in args]
        self._pending = None  # a weak reference to the last pass whose gradients are still to come
        self.is_touched = False  # an attribute of a module was set since
        before = self._before = State(torch, module)
        try:
            with Standing(torch, module) as standing:
                self._capture(call, [standing.of(parameter) for parameter in self._trained])
                if standing.have_moved():
                    raise Refused("it moves its parameters in memory")
        finally:
            torch.clear_autocast_cache()  # what was cast in the graph lies in its memory
            changed = before.restore()
        if changed:
            raise Refused(changed)
        self._function = make_function(torch, self)

    def _capture(self, call, trained):
        torch = self._torch
        wanted = [value for value in self._inputs if value.requires_grad] + trained
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                torch.clear_autocast_cache()
                outputs = self._flat(call(*self._inputs))[0]
                ends = [output for output in outputs if output.requires_grad]
                gradients = torch.autograd.grad(ends, wanted + self._trained, [torch.ones_like(output) for output in ends], allow_unused=True)
                if any(gradient is not None for gradient in gradients[len(wanted):]):
                    raise Refused("it keeps its parameters outside of its modules, too")
                del outputs, ends, gradients
        torch.cuda.current_stream().wait_stream(stream)
        pool = torch.cuda.graph_pool_handle()
        self._forward, self._backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        # Weights that were cast outside of the graph would stay as they are. To cast none ahead would be another state of autocast, for which models are compiled anew.
        torch.clear_autocast_cache()
        # Other threads, such as one that pins batches, may call CUDA meanwhile.
        with torch.cuda.graph(self._forward, pool=pool, capture_error_mode="thread_local"):
            self._outputs, self._form = self._flat(call(*self._inputs))
        self._with_gradient = [number for number, output in enumerate(self._outputs) if output.requires_grad]
        ends = [self._outputs[number] for number in self._with_gradient]
        self._output_gradients = [torch.zeros_like(output) for output in ends]
        with torch.cuda.graph(self._backward, pool=pool, capture_error_mode="thread_local"):
            gradients = torch.autograd.grad(ends, wanted, self._output_gradients, allow_unused=True)
            self._kept = [gradient for gradient in gradients if gradient is not None]
            self._joined = torch.cat([gradient.reshape(-1) for gradient in self._kept]) if can_join(self._kept) else None
        self._has_gradient = [gradient is not None for gradient in gradients]
        self._outputs = [output.detach() for output in self._outputs]

    def _flat(self, result):
        outputs, form = self._torch.utils._pytree.tree_flatten(result)
        if not outputs or not all(isinstance(output, self._torch.Tensor) and output.is_cuda for output in outputs):
            raise Refused("it returns something else than tensors on the GPU")
        return outputs, form

    def fits(self):
        """Whether the model is what it was: parameters where they were, as many of them trained, and the same attributes."""
        if self.is_touched and self._before.is_changed():
            return False
        self.is_touched = False
        return addresses(self._parameters) == self._addresses

    def is_busy(self):
        """Whether the memory is still needed: a pass before this one waits for its gradients."""
        pending = self._pending() if self._pending is not None else None
        return pending is not None and not pending.is_over

    def replay(self, args):
        """What the model would return."""
        outputs = self._function.apply(*args, *self._trained)
        return self._torch.utils._pytree.tree_unflatten(list(outputs), self._form)

    def forward(self, pass_, args):
        """Runs the first graph; gives copies."""
        self._pending = pass_
        for mine, value in zip(self._inputs, args):
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


def watch(tools, module, captured):
    """Sees when the program sets an attribute of a module of the model."""
    watched = {id(part) for part in module.modules()}

    def make(original):
        def __setattr__(self, name, value):
            original(self, name, value)
            if id(self) in watched:
                captured.is_touched = True

        return __setattr__

    tools.patches.replace(tools.torch.nn.Module, "__setattr__", make)


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
