"""The forward pass of models in 16 bits, by autocast; what they return has the dtype it would have without."""

from .models import PRECISION, Fixed, Refused
from .outputs import each_tensor
from .scaler import Scaler


def bf16(tools, _):
    """bfloat16 has the range of float32: no gradient is lost."""
    torch = tools.torch

    def make(module, call):
        device = device_of(torch, module)
        half, is_on = in_half(tools, "bf16", module, call, device, torch.bfloat16), autocast_question(torch, device)

        def call_in_bf16(*args, **kwargs):
            return (call if is_on() else half)(*args, **kwargs)

        return call_in_bf16

    tools.models.add("bf16", PRECISION, make)


def fp16(tools, _):
    """float16 ends at 65,504 and at 6e-8: gradients are scaled while they are computed."""
    torch, scaler = tools.torch, Scaler(tools)

    def make(module, call):
        device = device_of(torch, module)
        half, is_on = in_half(tools, "fp16", module, call, device, torch.float16), autocast_question(torch, device)
        scaler.know(module)

        def call_in_fp16(*args, **kwargs):
            may = not half.is_off and not is_on() and scaler.may_pass((*args, *kwargs.values()))
            return (half if may else call)(*args, **kwargs)

        return call_in_fp16

    tools.models.add("fp16", PRECISION, make)


def device_of(torch, module):
    """Where a model is, if it is all of float32."""
    kinds = {parameter.dtype for parameter in module.parameters() if parameter.is_floating_point()}
    if kinds != {torch.float32}:
        raise Refused("its parameters are " + ", ".join(sorted(str(kind).replace("torch.", "") for kind in kinds)))
    return next(module.parameters()).device.type


def in_half(tools, name, module, call, device, dtype):
    """A call under autocast, for when the program has none of its own."""
    torch = tools.torch

    def call_in_half(*args, **kwargs):
        with torch.autocast(device, dtype):
            return call(*args, **kwargs)

    def in_float32(result):
        return each_tensor(torch, result, lambda tensor: tensor.float() if tensor.dtype is dtype else tensor)

    return Fixed(tools, name, module, call, call_in_half, in_float32)


def autocast_question(torch, device):
    """Whether autocast is on for a kind of device; before torch 2.4 each had its own function."""
    try:
        torch.is_autocast_enabled(device)
        return lambda: torch.is_autocast_enabled(device)
    except TypeError:
        return torch.is_autocast_enabled if device == "cuda" else torch.is_autocast_cpu_enabled
