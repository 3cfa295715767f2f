"""How a batch is put together: from parts with one row, or one value, for each of its samples."""

import typing

from .samples import Refused

DIFFER = "its samples differ in form, or are more than one row of a batch"
ODD = "its batches hold something else than tensors and lists with a value for each sample"


class Rows(typing.NamedTuple):
    """A tensor whose rows are the samples."""

    shape: tuple  # of a row
    dtype: object
    device: object


class Values(typing.NamedTuple):
    """A list or a tuple with one value for each sample: names, or tensors each of its own size."""

    kind: type


class Branch(typing.NamedTuple):
    """What holds other parts, as torch's trees know it."""

    kind: type
    context: object  # the names in a dictionary, for instance
    children: list


class Form:
    """That of all batches of a loader, learned from one of a single sample and one of several."""

    def __init__(self, torch, single, several, count):
        self._torch = torch
        self._root = self._learn(single, several, count)

    def _learn(self, single, several, count):
        torch = self._torch
        if isinstance(single, torch.Tensor) and isinstance(several, torch.Tensor) and single.dim() > 0 and single.device.type in ("cpu", "cuda"):
            form = Rows(single.shape[1:], single.dtype, single.device)
            if single.shape[0] != 1 or several.dim() == 0 or several.shape[0] != count or form != Rows(several.shape[1:], several.dtype, several.device):
                raise Refused(DIFFER)
            return form
        if type(single) in (list, tuple) and type(several) is type(single) and (len(single), len(several)) == (1, count):
            return Values(type(single))
        form, other = self._open(single), self._open(several)
        if form is None or not form.children:
            raise Refused(ODD)
        if other is None or form[:2] != other[:2]:
            raise Refused(DIFFER)
        return form._replace(children=[self._learn(*both, count) for both in zip(form.children, other.children)])

    def _open(self, value):
        """What lies directly in it; None where that cannot be told."""
        trees = self._torch.utils._pytree
        kind = trees._get_node_type(value)
        if kind not in trees.SUPPORTED_NODES:
            return None
        children, context = trees.SUPPORTED_NODES[kind].flatten_fn(value)
        return Branch(kind, context, list(children))

    def parts(self, batch, count):
        """Those of a batch of so many samples; raises Refused where it is of another form."""
        found = []
        self._take_apart(self._root, batch, count, found)
        return found

    def _take_apart(self, form, value, count, found):
        if isinstance(form, Branch):
            opened = self._open(value)
            if opened is None or opened[:2] != form[:2]:
                raise Refused(DIFFER)
            for part, child in zip(form.children, opened.children):
                self._take_apart(part, child, count, found)
            return
        if isinstance(form, Rows):
            is_so = isinstance(value, self._torch.Tensor) and value.dim() > 0 and value.shape[0] == count and form == Rows(value.shape[1:], value.dtype, value.device)
        else:
            is_so = type(value) is form.kind and len(value) == count
        if not is_so:
            raise Refused(DIFFER)
        found.append(value if isinstance(form, Rows) else list(value))

    def put_together(self, parts):
        """A batch of these."""
        return self._build(self._root, iter(parts))

    def _build(self, form, parts):
        if isinstance(form, Branch):
            return self._torch.utils._pytree.SUPPORTED_NODES[form.kind].unflatten_fn([self._build(child, parts) for child in form.children], form.context)
        return next(parts) if isinstance(form, Rows) else form.kind(next(parts))
