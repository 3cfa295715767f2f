"""Gradients that lie in one piece, as a CUDA graph leaves them, are clipped in one piece: a few kernels, where each tensor had its own."""

import sys

from .. import dynamo

EPSILON = 1e-6  # as in torch's own


def in_one_piece(tools):
    """`clip_grad_norm_` of such gradients; all others are clipped by torch's own."""
    torch, is_tracing = tools.torch, dynamo.is_tracing(tools.torch)

    def make(original):
        def clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
            if is_tracing() or isinstance(parameters, torch.Tensor) or norm_type != 2 or error_if_nonfinite:
                return original(parameters, max_norm, norm_type, error_if_nonfinite, foreach)
            parameters = list(parameters)
            gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
            flat = piece_of(torch, gradients)
            if flat is None:
                return original(parameters, max_norm, norm_type, error_if_nonfinite, foreach)
            with torch.no_grad():
                norm = torch.linalg.vector_norm(flat)
                flat.mul_(torch.clamp(max_norm / (norm + EPSILON), max=1.0))
            return norm

        return clip_grad_norm_

    for module in (torch.nn.utils, sys.modules["torch.nn.utils.clip_grad"]):
        tools.patches.replace(module, "clip_grad_norm_", make)


def piece_of(torch, gradients):
    """All of them as one tensor, or None where they do not lie one after the other in the same memory."""
    if len(gradients) < 2 or any(type(gradient) is not torch.Tensor for gradient in gradients):
        return None  # other kinds of tensors need not have an address
    first, last = gradients[0], gradients[-1]
    begin = end = first.data_ptr()
    for gradient in gradients:
        if gradient.data_ptr() != end or gradient.dtype != first.dtype or not gradient.is_contiguous():
            return None
        end += gradient.numel() * gradient.element_size()
    if first.untyped_storage().data_ptr() != last.untyped_storage().data_ptr():
        return None  # neighbours by chance
    return first.as_strided(((end - begin) // first.element_size(),), (1,))
