"""What a model is before a pass, for those who may have to make the pass again."""

import collections
import weakref

from .random_state import RandomState

PLAIN = (bool, int, float, str, tuple)
CONTAINERS = (list, dict, set, collections.deque)


class State:
    """What a pass over a model may change besides computing: buffers, random numbers, attributes of its modules."""

    def __init__(self, torch, module):
        self._torch = torch
        self._values = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
        self._random, self._on_gpu = RandomState(torch), torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None
        self._parts = [Attributes(torch, part) for part in module.modules()]

    def is_changed(self, but=()):
        """Whether an attribute of a module has another value now, or is another tensor, but for some (each a module's attributes, and a name)."""
        excused = {(id(attributes), name) for attributes, name in but}
        return any(part.changed_values(excused) or part.changed_buffers() for part in self._parts)

    def restore(self, but=()):
        """Puts everything back; tells what was changed that a graph would not change again."""
        for buffer, value in self._values:
            buffer.data.copy_(value)  # unseen by autograd: passes of the program that wait for their gradients may have kept it
        if self._on_gpu is not None:
            self._torch.cuda.set_rng_state(self._on_gpu)
        draws = self._random.put_back()
        excused = {(id(attributes), name) for attributes, name in but}
        told = ["it draws random numbers on the CPU"] if draws else []
        told += [why for why in [part.restore(excused) for part in self._parts] if why]
        return told[0] if told else ""


class Attributes:
    """Those of one module: plain values, which tensor stands where, and what its lists and dictionaries hold."""

    def __init__(self, torch, part):
        self._torch = torch
        self._own = vars(part)
        self._plain = self._plain_now()
        self._tensors = {name: weakref.ref(tensor) for name, tensor in self._tensors_now().items()}
        self._buffers = {name: weakref.ref(buffer) for name, buffer in self._buffers_now().items()}
        self._contents = [(value, parts_of(value)) for value in self._own.values() if isinstance(value, CONTAINERS)]

    def changed_values(self, excused):
        """The names of plain values and tensors that are others now."""
        plain, tensors = self._plain_now(), self._tensors_now()
        names = {name for name in {**plain, **self._plain} if name not in plain or name not in self._plain or not is_same(plain[name], self._plain[name])}
        names |= changed(tensors, self._tensors)
        return {name for name in names if (id(self._own), name) not in excused}

    def changed_buffers(self):
        """The names of buffers in whose place other tensors stand."""
        return changed(self._buffers_now(), self._buffers)

    def restore(self, excused):
        """Puts plain values and contents back, and tells what had been changed."""
        buffers, values = self.changed_buffers(), self.changed_values(excused)
        filled = [(value, parts) for value, parts in self._contents if not all_same(parts_of(value), parts)]
        self._own.update(self._plain)
        for value, parts in filled:
            fill(value, parts)
        self._contents = []  # what they held is the program's to give up
        if buffers:
            return "it puts other tensors in the place of its buffers"
        return "its modules count or remember something in Python" if values or filled else ""

    def _plain_now(self):
        return {name: value for name, value in self._own.items() if is_plain(value)}

    def _tensors_now(self):
        return tensors_of(self._torch, self._own)

    def _buffers_now(self):
        return tensors_of(self._torch, self._own["_buffers"])


def tensors_of(torch, values):
    """Those of a dictionary's values that are tensors."""
    return {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}


def changed(now, before):
    """The names whose tensor is another one, is new, or is gone."""
    return {name for name in {**now, **before} if name not in now or name not in before or before[name]() is not now[name]}


def is_plain(value):
    """What cannot be changed but by another value."""
    return isinstance(value, PLAIN) or value is None


def is_same(new, old):
    """Whether a value is what it was: the same object, an equal plain value, or a container of such."""
    if new is old:
        return True
    if isinstance(old, (tuple, *CONTAINERS)):
        return type(new) is type(old) and all_same(parts_of(new), parts_of(old))
    return is_plain(new) and is_plain(old) and new == old


def all_same(new, old):
    """The same of their parts, one after the other."""
    return len(new) == len(old) and all(map(is_same, new, old))


def parts_of(container):
    """What a container holds; of a dictionary the keys, and then the values."""
    return [*container, *container.values()] if isinstance(container, dict) else list(container)


def fill(container, parts):
    """Puts into a container what parts_of() has found in it."""
    container.clear()
    if isinstance(container, dict):
        container.update(zip(parts, parts[len(parts) // 2:]))
    elif isinstance(container, set):
        container.update(parts)
    else:
        container.extend(parts)
