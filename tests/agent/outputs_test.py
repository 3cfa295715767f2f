"""Tensors in whatever a model returns: each becomes another, and the program's own objects stay as they are."""

import collections
import dataclasses
import functools
import sys
import typing
import unittest

import torch

from support import ROOT  # noqa: F401  (the agent's path)

from fullwatt.fixes.outputs import MOST_PARTS, Unreachable, each_tensor

HALF, FULL = torch.ones(2, dtype=torch.bfloat16), torch.ones(2)


def in_float32(value):
    return each_tensor(torch, value, lambda tensor: tensor.float() if tensor.dtype is torch.bfloat16 else tensor)


@dataclasses.dataclass
class Plain:
    x: object
    n: int = 3


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: object

    def __post_init__(self):
        if self.x is not HALF:
            raise AssertionError("called again")


@dataclasses.dataclass(frozen=True, **({"slots": True} if sys.version_info >= (3, 10) else {}))
class Slotted:
    x: object


class Named(typing.NamedTuple):
    x: object
    n: int = 3


class Derived(collections.namedtuple("Derived", "x n")):
    """A named tuple with more to it, which pytree does not know."""


class ModelOutput(collections.OrderedDict):
    """As in transformers: the same tensor is an item and an attribute."""

    def __init__(self, **parts):
        for name, part in parts.items():
            super().__setitem__(name, part)
            super().__setattr__(name, part)

    def __setitem__(self, *_):
        raise AssertionError("the program's code is called")

    __setattr__ = __reduce__ = __setitem__


class Thing:
    def __init__(self, **parts):
        vars(self).update(parts)


class Closing(Thing):
    def __del__(self):
        pass


class EachTensorTest(unittest.TestCase):
    def test_dataclasses_named_tuples_and_objects_are_copied_and_the_programs_stay(self):
        for thing in (Plain(HALF), Frozen(HALF), Slotted(HALF), Named(HALF), Derived(HALF, 3), Thing(x=HALF)):
            with self.subTest(type(thing).__name__):
                copy = in_float32(thing)
                self.assertIs(type(copy), type(thing))
                self.assertEqual((copy.x.dtype, thing.x.dtype, getattr(copy, "n", 3)), (torch.float32, torch.bfloat16, 3))

    def test_containers_in_objects_and_objects_in_containers(self):
        result = in_float32({"all": [Plain({"x": (HALF, 1)}), collections.defaultdict(list, x=HALF)]})
        self.assertEqual(result["all"][0].x["x"][0].dtype, torch.float32)
        self.assertEqual((result["all"][1]["x"].dtype, result["all"][1]["none"]), (torch.float32, []))

    def test_what_is_the_same_stays_the_same(self):
        output = ModelOutput(logits=HALF, loss=FULL)
        copy = in_float32(output)
        self.assertIs(copy.logits, copy["logits"])
        self.assertEqual((list(copy), copy.logits.dtype, output.logits.dtype), (["logits", "loss"], torch.float32, torch.bfloat16))
        self.assertIs(copy.loss, FULL)
        thing = Thing(x=HALF, other=Thing(x=FULL))
        thing.me = thing
        copy = in_float32(thing)
        self.assertIs(copy.me, copy)
        self.assertIs(copy.other, thing.other)

    def test_where_nothing_changes_nothing_is_copied(self):
        for thing in (Plain(FULL), [FULL, {"x": 1}], Thing(x=[FULL]), {FULL}, torch.nn.Linear(1, 1), (number for number in [1]), None):
            self.assertIs(in_float32(thing), thing)

    def test_what_torch_itself_returns(self):
        largest = in_float32(torch.max(torch.ones(2, 2, dtype=torch.bfloat16), 0))
        self.assertEqual((type(largest), largest.values.dtype), (torch.return_types.max, torch.float32))
        packed = in_float32(torch.nn.utils.rnn.pack_sequence([HALF]))
        self.assertEqual((type(packed), packed.data.dtype), (torch.nn.utils.rnn.PackedSequence, torch.float32))
        normal = in_float32(torch.distributions.Normal(HALF, HALF, validate_args=False))
        self.assertEqual(normal.sample().dtype, torch.float32)

    def test_what_cannot_be_reached_is_told(self):
        half = HALF

        def caught():
            return half

        for thing, kind in (({HALF}, "set"), (caught, "function"), (functools.partial(print, HALF), "partial"), (iter([HALF]), "list_iterator"), (Closing(x=HALF), "Closing")):
            with self.assertRaisesRegex(Unreachable, "it returns a %s, whose tensors cannot be reached" % kind):
                in_float32(thing)
        with self.assertRaisesRegex(Unreachable, "more than can be looked through"):
            in_float32(Thing(x=[Thing() for _ in range(MOST_PARTS)]))


if __name__ == "__main__":
    unittest.main()
