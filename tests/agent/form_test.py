"""Batches taken apart and put together again, and values that are no rows of a tensor."""

import collections
import unittest

import numpy
import support  # noqa: F401  (puts the agent on the path)
import torch
from fullwatt.fixes.cache.column import Column
from fullwatt.fixes.cache.form import Form
from fullwatt.fixes.cache.samples import Refused
from fullwatt.fixes.cache.values import is_same

Pair = collections.namedtuple("Pair", "x y")


def default(count, begin=0):
    """A batch as torch collates it."""
    return {"x": torch.arange(begin, begin + count).float().reshape(count, 1), "name": ["n%d" % index for index in range(begin, begin + count)]}


def detection(count, begin=0):
    """Pictures of different sizes with boxes, as trainings of detectors collate them."""
    pictures = [torch.full((3, index + 1), float(index)) for index in range(begin, begin + count)]
    return tuple(pictures), tuple({"boxes": torch.zeros(index, 4), "id": index} for index in range(begin, begin + count))


def nested(count, begin=0):
    return Pair([torch.zeros(count, 2), (torch.ones(count), [None] * count)], collections.OrderedDict(a=torch.zeros(count)))


class FormTest(unittest.TestCase):
    def test_batches_of_all_lengths(self):
        """Also of two, as many as there are parts."""
        for batch, parts in ((default, 2), (detection, 2), (nested, 4), (lambda count: torch.zeros(count), 1)):
            form = Form(torch, batch(1), batch(2), 2)
            for count in (1, 2, 3, 7):
                found = form.parts(batch(count), count)
                self.assertEqual(len(found), parts)
                again = form.put_together(found)
                self.assertIs(type(again), type(batch(count)))
                self.assertTrue(is_same(torch, again, batch(count)))

    def test_what_is_no_part_of_a_sample_is_refused(self):
        for batch, why in ((lambda count: {"x": torch.zeros(count), "epoch": 3}, "something else"), (lambda count: torch.zeros(()), "something else|differ in form"),
                           (lambda count: torch.zeros(3, count), "differ in form"), (lambda count: torch.zeros(count, count), "differ in form"),
                           (lambda count: {"x%d" % count: torch.zeros(count)}, "differ in form"), (lambda count: [], "something else"),
                           (lambda count: torch.zeros(count, dtype=torch.float if count == 1 else torch.int), "differ in form"),
                           (lambda count: ["a"] * (count + 1), "something else|differ in form")):  # fmt: skip
            with self.assertRaisesRegex(Refused, why):
                Form(torch, batch(1), batch(4), 4)

    def test_a_batch_of_another_form_is_refused(self):
        form = Form(torch, default(1), default(2), 2)
        for change in (lambda batch: batch["name"].pop(), lambda batch: batch.update(x=batch["x"].double()), lambda batch: batch.update(more=batch["x"]),
                       lambda batch: batch.update(x=batch["x"][:, :0]), lambda batch: batch.update(name=tuple(batch["name"])), lambda batch: batch.update(x=3)):  # fmt: skip
            batch = default(3)
            change(batch)
            with self.assertRaisesRegex(Refused, "differ in form"):
                form.parts(batch, 3)


class ColumnTest(unittest.TestCase):
    def test_values_come_back_in_any_order_and_are_the_programs_to_change(self):
        pictures, targets = detection(5)
        column = Column(torch, 5, 1 << 20)
        column[0:2], column[2:5] = targets[:2], targets[2:]
        targets[4]["boxes"].fill_(7)
        rows = torch.tensor([4, 0, 4])
        given = column.index_select(0, rows)
        self.assertEqual([value["id"] for value in given], [4, 0, 4])
        self.assertEqual([value["boxes"].shape[0] for value in given], [4, 0, 4])
        self.assertEqual(float(given[0]["boxes"].sum()), 0)
        given[0]["boxes"].fill_(9)
        given[0]["id"] = 8
        self.assertTrue(is_same(torch, column.index_select(0, rows), [detection(5)[1][index] for index in (4, 0, 4)]))
        self.assertEqual((column.has_tensors, len(column)), (True, 5))

    def test_all_that_samples_are_made_of(self):
        """As they were, and shared with nobody."""
        made = lambda: [Pair([1, 2], [torch.tensor(3), [True]]), collections.OrderedDict(a=numpy.arange(3.0)), numpy.float32(2), torch.ones(2, 3).t(), [["a"], None], ("b", 1j)]
        column = Column(torch, 6, 1 << 20)
        column[0:6] = made()
        for _ in range(2):
            given = column.index_select(0, torch.arange(6))
            self.assertTrue(is_same(torch, given, made()))
            self.assertEqual(list(map(type, given)), list(map(type, made())))
            given[0].x.append(3)
            given[0].y[0].zero_()
            given[0].y[1][0] = False
            given[1]["a"][0] = 7
            given[3].zero_()
            given[4][0].append("b")

    def test_what_differs_in_anything(self):
        alike = [torch.tensor(2), torch.tensor([float("nan")]), numpy.arange(2), numpy.array(float("nan")), float("nan"), "a", numpy.int64(3)]
        self.assertTrue(is_same(torch, alike, [torch.tensor(2), torch.tensor([float("nan")]), numpy.arange(2), numpy.array(float("nan")), float("nan"), "a", numpy.int64(3)]))
        for one, other in ((torch.tensor(2), torch.tensor(3)), (torch.tensor(2), torch.tensor(2.0)), (numpy.arange(2), numpy.arange(2.0)), (numpy.arange(2), numpy.arange(2)[:1]),
                           (numpy.array(-0.0), numpy.array(0.0)), (numpy.int64(3), numpy.int32(3)), (1, True), ([1], (1,)), (numpy.arange(1), torch.arange(1))):  # fmt: skip
            self.assertFalse(is_same(torch, [one], [other]), (one, other))

    def test_names_are_light(self):
        column = Column(torch, 2, 1 << 20)
        column[0:2] = ["a", "b"]
        self.assertFalse(column.has_tensors)

    def test_what_has_no_room_is_refused(self):
        column = Column(torch, 4, 100)
        with self.assertRaisesRegex(Refused, "room for"):
            column[0:4] = list(torch.zeros(4, 100))

    def test_other_things_are_refused(self):
        for value in (object(), [object()], {1, 2}, numpy.array([None]), torch.nn.Parameter(torch.zeros(1))):
            with self.assertRaisesRegex(Refused, "neither a tensor, an array nor a plain value"):
                Column(torch, 1, 100)[0:1] = [value]


if __name__ == "__main__":
    unittest.main()
