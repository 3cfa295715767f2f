"""What a model is before a pass, for those who may have to make the pass again."""

import collections
import itertools
import types
import weakref

from .random_state import RandomState

PLAIN = (bool, int, float, complex, str, bytes, type(None))  # what cannot be changed but by another value
CONTAINERS = (list, dict, set, collections.deque)
NO_STATE = (type, types.ModuleType, types.FunctionType, types.MethodType)  # have attributes, but none that a pass sets
DEPTH = 6  # of containers in containers
MANY = 10_000  # parts of a container; no more are looked at
MOST_BYTES = 64e6  # of a tensor that is no buffer and that is put back: others are more likely data than state

COUNTS = "its modules count or remember something in Python"
BUFFERS = "it puts other tensors in the place of its buffers"
PARAMETERS = "it puts other tensors in the place of its parameters"


class State:
    """What a pass over a model may change besides computing: tensors, random numbers, attributes of its modules and of the objects that stand in these."""

    def __init__(self, torch, module):
        self._torch = torch
        self._module = module
        self._parts = list(map(weakref.ref, module.modules()))
        other = names_of_others(torch)
        self._of_modules = [Attributes(torch, *place, other) for part in module.modules() for place in ((vars(part), COUNTS), (part._buffers, BUFFERS), (part._parameters, PARAMETERS))]
        self._of_objects = [Attributes(torch, vars(value), COUNTS, ()) for value in objects_in(torch, module)]
        buffers = list(module.buffers())
        others = [tensor for attributes in self._of_modules + self._of_objects for tensor in attributes.tensors() if is_small(tensor)]
        self._contents = [(tensor, tensor.detach().clone()) for tensor in {id(tensor): tensor for tensor in buffers + others}.values() if can_be_written(torch, tensor)]
        self._random = RandomState(torch, [value for attributes in self._of_modules + self._of_objects for value in attributes.values()])

    def is_changed(self, but=()):
        """Whether the program has set an attribute of a module to another value or tensor, but for some (each a dictionary of attributes, and a name), or replaced a module.
        What it does to its lists and objects is its own."""
        if not all(known() is part for known, part in itertools.zip_longest(self._parts, self._module.modules(), fillvalue=lambda: None)):
            return True
        return any(attributes.changed_values(but) for attributes in self._of_modules)

    def restore(self, but=()):
        """Puts everything back, once; tells what was changed that a graph would not change again, but for some attributes."""
        for tensor, contents in self._contents:
            tensor.data.copy_(contents)  # unseen by autograd: passes of the program that wait for their gradients may have kept it
        self._contents = []
        told = ["it draws random numbers on the CPU"] if self._random.put_back() else []
        told += [attributes.restore(but) for attributes in self._of_modules + self._of_objects]
        return next(filter(None, told), "")


def objects_in(torch, module):
    """The objects of the program that stand in attributes of modules, and have attributes themselves."""
    others, names = (torch.Tensor, torch.nn.Module, *NO_STATE), names_of_others(torch)
    values = [value for part in module.modules() for name, value in vars(part).items() if name not in names]
    return list({id(value): value for value in values if not isinstance(value, others) and isinstance(getattr(value, "__dict__", None), dict)}.values())


def names_of_others(torch):
    """Of those attributes that every module has from torch, or from the agent, and that are looked at apart or not at all."""
    return (vars(torch.nn.Module()).keys() | {"_compiled_call_impl"}) - {"training"}


def is_small(tensor):
    return tensor.numel() * tensor.element_size() <= MOST_BYTES


def can_be_written(torch, tensor):
    """Whether each of its elements has a place of its own, and may be changed."""
    return tensor.layout == torch.strided and not tensor.is_inference() and not any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape))


class Attributes:
    """Those of one module or object: what each was, and, until they are put back, the values themselves."""

    def __init__(self, torch, values, why, others):
        self._torch = torch
        self._values = values
        self._why = why  # it tells something when one is changed
        self._others = others  # names of those that are not looked at
        self._before = self._own()
        self._known = {name: Known(value) for name, value in self._before.items()}
        self._containers = [(value, parts_of(value)) for value in self.values() if isinstance(value, CONTAINERS)]

    def values(self):
        """All of them, and what is in lists and the like, each once."""
        found, waiting = {}, list(self._before.values())
        while waiting:
            value = waiting.pop()
            if id(value) not in found:
                found[id(value)] = value
                waiting += first_parts(value) if has_parts(value) else []
        return list(found.values())

    def tensors(self):
        """The tensors among these."""
        return [value for value in self.values() if type(value) is self._torch.Tensor]

    def changed_values(self, but):
        """The names of those that are another plain value, tuple or tensor now, but for some."""
        kinds = (self._torch.Tensor, tuple, *PLAIN)
        return [name for name in self._changed(but) if name not in self._values or isinstance(self._values[name], kinds) or name in self._known and issubclass(self._known[name].kind, kinds)]

    def restore(self, but):
        """Puts all back, and tells what had been changed. What the values hold is the program's to give up from then on."""
        told, changed = self._changed(but), self._changed()
        for container, parts in self._containers:
            if changed and not are_same(parts_of(container), parts):
                fill(container, parts)
        for name in changed:
            if name in self._before:
                self._values[name] = self._before[name]
            else:
                del self._values[name]
        self._before, self._containers = {}, []
        return self._why if told else ""

    def _own(self):
        return {name: value for name, value in self._values.items() if name not in self._others}

    def _changed(self, but=()):
        """The names of those that are something else now, are new, or are gone."""
        now = self._own()
        excused = {name for values, name, *_ in but if values is self._values}
        return {name for name in {**self._known, **now} if name not in excused and not (name in now and name in self._known and self._known[name].is_still(now[name]))}


class Known:
    """What a value was, without keeping it alive: a plain value, a container by its parts, anything else by being itself."""

    def __init__(self, value, depth=DEPTH):
        self.kind = type(value)
        self._count, self._parts = (len(value), [Known(part, depth - 1) for part in first_parts(value)]) if has_parts(value) and depth else (0, None)
        self._get = reference_to(value if self._parts is None else None)

    def is_still(self, value):
        """Whether a value is that."""
        if type(value) is not self.kind:
            return False
        if self._parts is not None:
            return len(value) == self._count and all(known.is_still(part) for known, part in zip(self._parts, first_parts(value)))
        mine = self._get()
        return value is mine or isinstance(value, PLAIN) and value == mine


def reference_to(value):
    """A weak one, where there are such; plain values may be kept."""
    try:
        return weakref.ref(value) if not isinstance(value, PLAIN) else lambda: value
    except TypeError:
        return lambda: value


def has_parts(value):
    return isinstance(value, (tuple, *CONTAINERS))


def parts_of(container):
    """What a container holds; of a dictionary the keys, and then the values."""
    return [*container, *container.values()] if isinstance(container, dict) else list(container)


def first_parts(container):
    return parts_of(container)[:MANY]


def are_same(some, others):
    """Whether they are the same objects."""
    return len(some) == len(others) and all(one is other for one, other in zip(some, others))


def fill(container, parts):
    """Puts into a container what parts_of() has found in it."""
    container.clear()
    if isinstance(container, dict):
        container.update(zip(parts, parts[len(parts) // 2:]))
    elif isinstance(container, set):
        container.update(parts)
    else:
        container.extend(parts)
