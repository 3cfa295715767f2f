"""Values of samples that are no rows of one tensor, such as names, or tensors each of its own size."""

import sys

from ..model_state import PLAIN
from .samples import Refused


class Column:
    """One value for each packed sample, in at most so many bytes."""

    is_cuda = False

    def __init__(self, torch, count, room):
        self._torch = torch
        self._values = [None] * count
        self._room = room
        self.nbytes = 0
        self.has_tensors = False

    def __len__(self):
        return len(self._values)

    def __setitem__(self, rows, values):
        leaves = [leaf for value in values for leaf in leaves_of_value(self._torch, value)]
        self.has_tensors = self.has_tensors or any(isinstance(leaf, self._torch.Tensor) for leaf in leaves)
        self.nbytes += sum(map(size_of, leaves))
        if self.nbytes > self._room:
            raise Refused("its samples take more than the %.1f GB that there is room for" % (self._room / 1e9))
        self._values[rows] = [self._copied(value) for value in values]

    def __getitem__(self, rows):
        return self._values[rows]

    def index_select(self, _, rows):
        """Values that are the program's to change."""
        return [self._copied(self._values[row]) for row in rows.tolist()]

    def _copied(self, value):
        if isinstance(value, PLAIN):
            return value
        return self._torch.utils._pytree.tree_map(lambda leaf: leaf.clone() if isinstance(leaf, self._torch.Tensor) else leaf, value)


def leaves_of_value(torch, value):
    """What a value consists of; raises Refused where it cannot be copied by its parts."""
    leaves = torch.utils._pytree.tree_flatten(value)[0]
    for leaf in leaves:
        if not isinstance(leaf, PLAIN) and not (type(leaf) is torch.Tensor and leaf.device.type == "cpu"):
            raise Refused("its samples hold a %s, which is neither a tensor on the CPU nor a plain value" % type(leaf).__name__)
    return leaves


def size_of(leaf):
    return sys.getsizeof(leaf) if isinstance(leaf, PLAIN) else leaf.nbytes
