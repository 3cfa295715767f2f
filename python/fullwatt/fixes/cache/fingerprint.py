"""What objects of the program look like, to be compared later: a short walk over their attributes that runs none of their code."""

import collections
import functools
import itertools
import sys
import types

DEPTH = 6  # a Subset's data set, its transform, the list in that, one of it, its attribute: 5
MOST_ITEMS = 2000  # at 1 to 3 microseconds each
MOST_PARTS = 64  # of one list, dictionary or array, so that a long one leaves room for what comes after it
PLAIN = frozenset((type(None), bool, int, float, complex, str, bytes))


class Fingerprint:
    """Plain values as they are, tensors with the number of changes made in place, NumPy's arrays with some of their numbers, everything else by its identity.
    `kept` is all of that but what was asked about, which is the caller's to keep."""

    def __init__(self, items, kept):
        self._items = items
        self.kept = kept  # so that no identity is given to something new

    def __eq__(self, other):
        return isinstance(other, Fingerprint) and self._items == other._items


def fingerprint(torch, *things):
    """Of these; where it cannot be taken, what equals no other."""
    try:
        return walk(torch, things)
    except Exception:  # another thread changes a dictionary meanwhile
        return object()


def reachable(torch, *things):
    """All that was seen in such a walk but plain values; where it failed nothing."""
    found = fingerprint(torch, *things)
    return found.kept if isinstance(found, Fingerprint) else []


def leads_to(torch, thing, *things):
    """Whether it is found on a walk from these, or from itself."""
    return any(found is thing for found in (*things, *reachable(torch, thing, *things)))


def is_same_function(torch, one, other):
    """Also where it is written, or made, on the spot, again and again."""
    kind = type(one)
    if one is other or kind is not type(other):
        return one is other
    if kind is types.MethodType:
        return one == other
    if kind is functools.partial:
        one, other = ((each.func, *each.args, *itertools.chain.from_iterable(each.keywords.items())) for each in (one, other))
        return fingerprint(torch, *one) == fingerprint(torch, *other)
    return (kind is types.FunctionType or has_only_attributes(kind)) and fingerprint(torch, *parts_of(one)) == fingerprint(torch, *parts_of(other))


def has_only_attributes(kind):
    """Whether an object of this class has no room for anything else."""
    return layout_of(kind) == layout_of(Attributes)


def remembered(value):
    """The plain values among the attributes of such an object."""
    attributes = attributes_of(value) if has_only_attributes(type(value)) else {}
    return {name: each for name, each in dict.items(attributes) if type(each) in PLAIN}


class Attributes:
    """Has nothing else."""


def layout_of(kind):
    return kind.__basicsize__, kind.__itemsize__, kind.__dictoffset__, kind.__weakrefoffset__


def walk(torch, things):
    """The nearest come first: they are seen even where there is more than can be."""
    items, kept, seen = [], [], set()
    waiting = collections.deque((thing, 0) for thing in things)
    while waiting:
        value, depth = waiting.popleft()
        kind = type(value)
        if kind in PLAIN:
            items.append((kind, value))
            continue
        items.append((id(value), version_of(torch, value)))
        if depth > 0:
            kept.append(value)
        if depth < DEPTH and id(value) not in seen:
            seen.add(id(value))
            room = max(0, MOST_ITEMS - len(items) - len(waiting))
            waiting.extend((part, depth + 1) for part in itertools.islice(parts_of(value), room))
    return Fingerprint(items, kept)


def version_of(torch, value):
    """How often a tensor was changed in place, or some numbers of an array, which does not count; None for other things. What is mapped from a file is not read."""
    kind, numpy = type(value), sys.modules.get("numpy")
    if kind in (torch.Tensor, torch.nn.Parameter) and not value.is_inference():
        return value._version
    if numpy is not None and kind is numpy.ndarray and not value.dtype.hasobject and type(value.base) is not numpy.memmap:
        return value.flat[:: value.size // MOST_PARTS + 1].tobytes()
    return None


def parts_of(value):
    """What lies in a container, what a function has caught, and the attributes of an object."""
    kind = type(value)
    if issubclass(kind, dict):
        yield from parts_of_dict(value)
    elif issubclass(kind, (list, tuple)):
        base = list if issubclass(kind, list) else tuple  # whatever a subclass makes of it
        count = base.__len__(value)
        yield count
        yield from base.__getitem__(value, slice(None, None, count // MOST_PARTS + 1))
    elif kind in (set, frozenset, collections.deque):
        yield len(value)
        yield from itertools.islice(value, MOST_PARTS)
    elif kind is types.FunctionType:
        yield from (value.__code__, value.__defaults__, value.__kwdefaults__)
        yield from caught_by(value)
    elif kind is types.MethodType:
        yield from (value.__self__, value.__func__)
    elif kind is functools.partial:
        yield from (value.func, value.args, value.keywords)
    if kind is not types.ModuleType:
        yield from parts_of_dict(attributes_of(value))


def caught_by(function):
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # nothing yet
            yield None


def parts_of_dict(value):
    yield dict.__len__(value)
    for item in itertools.islice(dict.items(value), MOST_PARTS):
        yield from item


def attributes_of(value):
    """Its dictionary, by Python's own access to it."""
    for kind in type(value).__mro__:
        access = kind.__dict__.get("__dict__")
        if access is not None:
            found = access.__get__(value) if type(access) is types.GetSetDescriptorType else None
            return found if type(found) is dict else {}
    return {}
