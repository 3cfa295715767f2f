"""Values of samples that are no rows of one tensor, such as names, or tensors each of its own size."""

from .samples import Refused
from .values import copied, host_leaves_of, size_of


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
        leaves = [leaf for value in values for leaf in host_leaves_of(self._torch, value)]
        self.has_tensors = self.has_tensors or any(isinstance(leaf, self._torch.Tensor) for leaf in leaves)
        self.nbytes += sum(map(size_of, leaves))
        if self.nbytes > self._room:
            raise Refused("its samples take more than the %.1f GB that there is room for" % (self._room / 1e9))
        self._values[rows] = [copied(self._torch, value) for value in values]

    def __getitem__(self, rows):
        return self._values[rows]

    def index_select(self, _, rows):
        """Values that are the program's to change."""
        return [copied(self._torch, self._values[row]) for row in rows.tolist()]
