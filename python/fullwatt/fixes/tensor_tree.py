"""Tensors as a program passes them on: in tuples, lists, dictionaries or whatever torch's own trees know, with plain values between them."""

from .model_state import PLAIN

TENSOR = object()  # stands where a tensor was


class TensorTree:
    """The tensors of a value, and all the rest of it."""

    def __init__(self, torch, value):
        self._unflatten = torch.utils._pytree.tree_unflatten
        leaves, self._form = torch.utils._pytree.tree_flatten(value)
        self.tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        self._rest = [TENSOR if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]

    def is_plain(self):
        """Whether the rest is nothing but plain values."""
        return all(leaf is TENSOR or isinstance(leaf, PLAIN) for leaf in self._rest)

    def rest(self):
        """That, to be compared."""
        return self._form, [(type(leaf), leaf) for leaf in self._rest]

    def with_tensors(self, tensors):
        """The value with other tensors."""
        given = iter(tensors)
        return self._unflatten([next(given) if leaf is TENSOR else leaf for leaf in self._rest], self._form)
