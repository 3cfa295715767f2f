"""Counts the floating point operations of one step, by operation and precision, and the bytes it moves, while it runs as it always does.

A multiplication and an addition count as two operations. Only the operations that matter are counted: products of matrices,
convolutions, attention and recurrent layers.
"""

from . import traffic
from .describe import short


def product(sizes):
    """The product of some sizes."""
    result = 1
    for size in sizes:
        result *= int(size)
    return result


def matrix_flops(left, right):
    """[…, m, k] times […, k, n]."""
    return 2 * product(left.shape) * int(right.shape[-1])


def convolution_flops(spread, weight):
    """Each element of the output (of the input when transposed) meets the whole kernel of its group once."""
    return 2 * product(spread.shape) * product(weight.shape[1:])


def attention_flops(query, key, value):
    """Two products: query with key, and the weights with the values."""
    batch_heads, queries, width = product(query.shape[:-2]), int(query.shape[-2]), int(query.shape[-1])
    return 2 * batch_heads * queries * int(key.shape[-2]) * (width + int(value.shape[-1]))


def recurrent_flops(steps_times_batch, weights):
    """Every weight matrix is applied at every time step to every sample."""
    return 2 * steps_times_batch * sum(product(w.shape) for w in weights if w is not None and w.dim() == 2)


def _mm(args, kwargs, out):
    return matrix_flops(args[0], args[1])


def _addmm(args, kwargs, out):
    return matrix_flops(args[1], args[2])


def _convolution(args, kwargs, out):
    inputs, weight, transposed = args[0], args[1], args[6]
    return convolution_flops(inputs if transposed else out, weight)


def _convolution_backward(args, kwargs, out):
    gradient, inputs, weight = args[0], args[1], args[2]
    transposed, wanted = args[7], args[10]
    once = convolution_flops(inputs if transposed else gradient, weight)
    return once * (bool(wanted[0]) + bool(wanted[1]))


def _attention(args, kwargs, out):
    return attention_flops(args[0], args[1], args[2])


def _attention_backward(args, kwargs, out):
    """The scores are computed again, then two products for each of the two forward ones."""
    return attention_flops(args[1], args[2], args[3]) * 5 // 2


def _cudnn_rnn(args, kwargs, out):
    inputs, weights = args[0], args[1]
    return recurrent_flops(product(inputs.shape[:-1]), weights)


def _cudnn_rnn_backward(args, kwargs, out):
    return 2 * _cudnn_rnn(args, kwargs, out)


def _mkldnn_rnn(args, kwargs, out):
    return recurrent_flops(product(args[0].shape[:-1]), args[1:3])


def _mkldnn_rnn_backward(args, kwargs, out):
    return 2 * _mkldnn_rnn(args, kwargs, out)


RULES = {
    "mm": _mm,
    "bmm": _mm,
    "_scaled_mm": _mm,
    "_int_mm": _mm,
    "addmm": _addmm,
    "addbmm": _addmm,
    "baddbmm": _addmm,
    "_addmm_activation": _addmm,
    "convolution": _convolution,
    "_convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "_scaled_dot_product_flash_attention": _attention,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_efficient_attention": _attention,
    "_scaled_dot_product_cudnn_attention": _attention,
    "_scaled_dot_product_flash_attention_backward": _attention_backward,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    "_scaled_dot_product_efficient_attention_backward": _attention_backward,
    "_scaled_dot_product_cudnn_attention_backward": _attention_backward,
    "_cudnn_rnn": _cudnn_rnn,
    "_cudnn_rnn_backward": _cudnn_rnn_backward,
    "mkldnn_rnn_layer": _mkldnn_rnn,
    "mkldnn_rnn_layer_backward": _mkldnn_rnn_backward,
}

PRODUCTS = ("mm", "bmm", "addmm", "addbmm", "baddbmm", "_addmm_activation")
LOAD_BYTES = 16  # that tensor cores want to read at once
HALF_BYTES = 2


def is_unaligned(tensor):
    """Whether rows of a half-precision matrix on a GPU begin where no load of full width may."""
    if tensor.dim() < 2 or not tensor.is_cuda or tensor.element_size() != HALF_BYTES or 1 in tensor.shape[-2:]:
        return False
    return max(tensor.stride()[-2:]) * HALF_BYTES % LOAD_BYTES != 0


BACKENDS = {
    "_scaled_dot_product_flash_attention": "flash",
    "_scaled_dot_product_flash_attention_for_cpu": "flash",
    "_scaled_dot_product_efficient_attention": "efficient",
    "_scaled_dot_product_cudnn_attention": "cudnn",
}


class Tally:
    """The sums of one step."""

    def __init__(self, in_backward):
        self._in_backward = in_backward
        self.forward = self.backward = 0
        self.by_dtype, self.by_op, self.attention, self.bytes = {}, {}, {}, {}
        self.operations = self.attention_calls = 0
        self.unaligned = {}
        self.errors = 0

    def add(self, func, args, kwargs, out):
        """Counts one operation; one that looks unlike what was expected is left out."""
        name = func._overloadpacket.__name__
        self.operations += 1
        try:
            traffic.add(self.bytes, func, args, kwargs, out)
        except Exception:
            self.errors += 1
        rule = RULES.get(name)
        if rule is None:
            return
        try:
            flops, dtype = rule(args, kwargs, out), short(args[0].dtype)
            self._look_at_rows(name, args, out, flops, dtype)
        except Exception:
            self.errors += 1
            return
        if self._in_backward():
            self.backward += flops
        else:
            self.forward += flops
        self.by_dtype[dtype] = self.by_dtype.get(dtype, 0) + flops
        self.by_op[name] = self.by_op.get(name, 0) + flops
        if name in BACKENDS:
            self.attention[BACKENDS[name]] = self.attention.get(BACKENDS[name], 0) + 1

    def _look_at_rows(self, name, args, out, flops, dtype):
        if name not in PRODUCTS:
            return
        left, right = args[:2] if name in ("mm", "bmm") else args[1:3]
        if any(map(is_unaligned, (left, right, out))):
            sizes = "%d x %d x %d" % (left.shape[-2], left.shape[-1], right.shape[-1])
            found = self.unaligned.setdefault(dtype, {"flops": 0, "largest": 0, "sizes": ""})
            found["flops"] += flops
            if flops > found["largest"]:
                found.update(largest=flops, sizes=sizes)

    def flops_fact(self, step):
        """The fact `flops`."""
        return {
            "forward": self.forward,
            "backward": self.backward,
            "total": self.forward + self.backward,
            "operations": self.operations,
            "by_dtype": self.by_dtype,
            "by_op": self.by_op,
            "bytes": self.bytes,
            "unaligned": [{"dtype": dtype, "flops": found["flops"], "sizes": found["sizes"]} for dtype, found in self.unaligned.items()],
            "step": step,
        }

    def attention_fact(self):
        """Calls by backend. The slow one is made of ordinary operations: what no fused one took was its."""
        fused = sum(self.attention.values())
        backends = dict(self.attention)
        if self.attention_calls > fused:
            backends["math"] = self.attention_calls - fused
        return backends


class Counter:
    """A mode that sees every operation and passes it on as it is, and a hook that counts the calls of attention."""

    GROUP = "counting"

    def __init__(self, torch, patches, in_backward):
        self._torch = torch
        self._patches = patches
        self.tally = Tally(in_backward)
        self._mode = _dispatch_mode(self.tally)

    def start(self):
        """From now on this thread's operations are counted, and those of the backward passes it starts."""
        self._patches.replace(self._torch.nn.functional, "scaled_dot_product_attention", self._make_attention, self.GROUP)
        self._mode.__enter__()

    def stop(self):
        """Leaves no trace."""
        self._patches.restore(self.GROUP)
        self._mode.__exit__(None, None, None)

    def is_on_top(self):
        """Modes are a stack: while somebody else's lies above ours, ours cannot be taken off."""
        from torch.utils import _python_dispatch

        current = getattr(_python_dispatch, "_get_current_dispatch_mode", None)
        return current is None or current() is self._mode

    def _make_attention(self, original):
        tally = self.tally

        def scaled_dot_product_attention(*args, **kwargs):
            tally.attention_calls += 1
            return original(*args, **kwargs)

        return scaled_dot_product_attention


def _dispatch_mode(tally):
    from torch.utils._python_dispatch import TorchDispatchMode

    class CountOperations(TorchDispatchMode):
        """Sees every operation that reaches a kernel."""

        supports_higher_order_operators = True

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            out = func(*args, **kwargs)
            if hasattr(func, "_overloadpacket"):
                tally.add(func, args, kwargs, out)
            return out

    return CountOperations()
