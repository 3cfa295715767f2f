"""What a model returns, with other tensors in it: in containers, dataclasses and other objects, too.

Nothing of the program's is changed where it is: what holds a tensor that becomes another one is copied, by Python's own means, so that none of the program's code runs.
Everything else stays the object that it is.
"""

import collections
import functools
import gc
import sys
import types

from .cache.fingerprint import PLAIN, attributes_of, caught_by

MOST_PARTS = 10_000  # of objects in one result; a look at one takes a few microseconds
HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class that was made while the program ran
BASES = (collections.OrderedDict, collections.defaultdict, list, tuple, dict, object)  # whose content can be copied
KNOWN = frozenset(getattr(sys, "stdlib_module_names", ())) | {"numpy"}  # whose classes in C tell Python's collector what they hold


class Unreachable(Exception):
    """Why a result cannot be changed."""


def each_tensor(torch, value, change):
    """The same result with every tensor changed; `change` gives the tensor itself where it is as it should be. Raises Unreachable."""
    if isinstance(value, torch.Tensor):
        return change(value)
    leaves, form = torch.utils._pytree.tree_flatten(value)
    changing = Changing(torch, change)
    changed = [leaf if type(leaf) in PLAIN else changing.tensor(leaf) if isinstance(leaf, torch.Tensor) else changing.inside(leaf) for leaf in leaves]
    if all(new is old for new, old in zip(changed, leaves)):
        return value
    return torch.utils._pytree.tree_unflatten(changed, form)


class Changing:
    """Changes the tensors of one result, each once, and copies what leads to those that became others."""

    def __init__(self, torch, change):
        self._torch = torch
        self._change = change
        self._new = {}  # what stands for an object, by its id
        self._kept = []  # so that no id is given away
        self._parents = {}
        self._count = 0
        self._ends = (torch.nn.Module, torch.Size, torch.dtype, torch.device, type, types.ModuleType)

    def tensor(self, tensor):
        """What becomes of a tensor."""
        if id(tensor) not in self._new:
            self._kept.append(tensor)
            self._new[id(tensor)] = self._change(tensor)
        return self._new[id(tensor)]

    def inside(self, thing):
        """What becomes of an object."""
        changed = self._walk(thing)
        leading = set()
        while changed:
            for parent in self._parents.get(id(changed.pop()), ()):
                if id(parent) not in leading:
                    leading.add(id(parent))
                    changed.append(parent)
        return self._copied(thing, leading)

    def _walk(self, thing):
        """The tensors in it that become others."""
        waiting, seen, changed = collections.deque([thing]), {id(thing)}, []
        while waiting:
            value = waiting.popleft()
            for part in self._parts(value):
                self._parents.setdefault(id(part), []).append(value)
                if id(part) in seen:
                    continue
                seen.add(id(part))
                self._kept.append(part)
                if not isinstance(part, self._torch.Tensor):
                    waiting.append(part)
                elif self.tensor(part) is not part:
                    changed.append(part)
        return changed

    def _parts(self, value):
        for part in () if isinstance(value, self._ends) else parts_of(value):
            if type(part) in PLAIN:
                continue
            self._count += 1
            if self._count > MOST_PARTS:
                raise Unreachable("it returns more than can be looked through")
            yield part

    def _copied(self, value, leading):
        """A copy where something in it became another, otherwise itself."""
        if id(value) in self._new or id(value) not in leading:
            return self._new.get(id(value), value)
        copied = functools.partial(self._copied, leading=leading)
        kind = type(value)
        try:
            return self._copy(value, kind, copied)
        except TypeError:
            raise Unreachable("it returns a %s, whose tensors cannot be reached" % kind.__name__) from None

    def _copy(self, value, kind, copied):
        if hasattr(kind, "__del__"):
            raise TypeError  # it would be called for the copy, too
        base = base_of(kind)
        new = tuple_of(kind, map(copied, tuple.__iter__(value))) if base is tuple else base.__new__(kind)
        self._new[id(value)] = new  # before its parts, which may lead back to it
        if base is list:
            list.extend(new, map(copied, list.__iter__(value)))
        elif issubclass(base, dict):
            for key, part in base.items(value):
                base.__setitem__(new, key, copied(part))
        if base is collections.defaultdict:
            new.default_factory = value.default_factory
        attributes_of(new).update((name, copied(part)) for name, part in attributes_of(value).items())
        for slot, part in slots_of(value):
            slot.__set__(new, copied(part))
        return new


def parts_of(value):
    """What an object holds. Raises Unreachable for a kind of somebody's own that is made in C."""
    kind = type(value)
    in_c = base_in_c(kind)
    if kind is types.FunctionType:
        yield from (value.__defaults__, value.__kwdefaults__)
        yield from caught_by(value)
    elif in_c is not None:
        if in_c.__flags__ & HEAP_TYPE and in_c.__module__.split(".")[0] not in KNOWN:
            raise Unreachable("it returns a %s, which cannot be looked into" % kind.__name__)
        yield from gc.get_referents(value)
    elif issubclass(kind, dict):
        yield from dict.values(value)
    elif issubclass(kind, (list, tuple)):
        yield from (list if issubclass(kind, list) else tuple).__iter__(value)
    yield from attributes_of(value).values()
    yield from (part for _, part in slots_of(value))


def slots_of(value):
    """The slots that have a value, and these."""
    for kind in type(value).__mro__:
        for slot in vars(kind).values() if kind.__flags__ & HEAP_TYPE else ():
            if type(slot) is types.MemberDescriptorType:
                try:
                    yield slot, slot.__get__(value)
                except AttributeError:
                    pass  # it is empty


def base_of(kind):
    """The class of Python's own from which an object of this kind is made."""
    if base_in_c(kind) is not None:
        raise TypeError
    return next(base for base in kind.__mro__ if base in BASES)


def base_in_c(kind):
    """The class made in C, other than those whose content can be copied, of which a kind is; None where it is all Python's."""
    for base in kind.__mro__:
        if base not in BASES and not hasattr(base, "n_sequence_fields") and (not base.__flags__ & HEAP_TYPE or isinstance(vars(base).get("__new__"), types.BuiltinFunctionType)):
            return base
    return None


def tuple_of(kind, items):
    """A tuple, also of a kind that has names for its items."""
    items = list(items)
    try:
        return tuple.__new__(kind, items)
    except TypeError:  # such as what torch.max returns
        return kind(items)
