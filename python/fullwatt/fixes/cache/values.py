"""What a sample consists of: tensors, arrays and plain values, in lists, tuples and dictionaries."""

import sys

from ..model_state import PLAIN
from .samples import Refused


def leaves_of(torch, value):
    """What a value consists of; raises Refused where it cannot be copied or compared by its parts."""
    leaves = torch.utils._pytree.tree_flatten(value)[0]
    for leaf in leaves:
        if not is_fixed(leaf) and not is_array(leaf) and type(leaf) is not torch.Tensor:
            raise Refused("its samples hold a %s, which is neither a tensor, an array nor a plain value" % type(leaf).__name__)
    return leaves


def host_leaves_of(torch, value):
    """The same of one that lies in the host's memory."""
    leaves = leaves_of(torch, value)
    if any(isinstance(leaf, torch.Tensor) and leaf.device.type != "cpu" for leaf in leaves):
        raise Refused("its samples hold tensors on the GPU that are no rows of a batch")
    return leaves


def copied(torch, value):
    """One that shares nothing with it that could be changed."""
    kind = type(value)
    if kind is torch.Tensor:
        return value.clone()
    if kind is list:
        return value[:] if all(map(is_fixed, value)) else [copied(torch, part) for part in value]
    if kind is tuple:
        return tuple([copied(torch, part) for part in value])
    if kind is dict:
        return {name: copied(torch, part) for name, part in value.items()}
    if is_fixed(value):
        return value
    return value.copy() if is_array(value) else torch.utils._pytree.tree_map(lambda leaf: copied(torch, leaf), value)


def is_fixed(value):
    """Whether it cannot be changed."""
    numpy = sys.modules.get("numpy")
    return isinstance(value, PLAIN) or numpy is not None and isinstance(value, numpy.generic)


def is_array(value):
    """Whether it is one of NumPy's that holds all there is to it."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(value) is numpy.ndarray and not value.dtype.hasobject


def size_of(leaf):
    return sys.getsizeof(leaf) if is_fixed(leaf) else leaf.nbytes


def is_same(torch, some, others):
    """Equal to the bit, whatever trees these are; a NaN equals itself."""
    (ones, form), (twos, other_form) = torch.utils._pytree.tree_flatten(some), torch.utils._pytree.tree_flatten(others)
    return form == other_form and all(map(is_same_leaf(torch), ones, twos))


def is_same_leaf(torch):
    """A function that compares two of them."""

    def compare(one, other):
        if type(one) is not type(other):
            return False
        if is_array(one):
            return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
        if not isinstance(one, torch.Tensor):
            return one == other or one != one and other != other
        return one.dtype == other.dtype and one.shape == other.shape and torch.equal(bytes_of(torch, one), bytes_of(torch, other))

    return compare


def bytes_of(torch, tensor):
    return tensor.contiguous().view(-1).view(torch.uint8)
