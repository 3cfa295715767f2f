"""Audits of packed samples: what a data set looks like, when its samples are fetched again, and what is seen then. Time is an argument."""

import functools
import math
import operator
import unittest

import numpy
import torch

from support import ROOT  # noqa: F401  (the agent's path)

from fullwatt.fixes.cache.audit import FIRST_AUDIT, PROBES, RAREST_AUDIT, REST, Audits
from fullwatt.fixes.cache.fingerprint import MOST_ITEMS, fingerprint, is_same_function
from fullwatt.fixes.cache.form import Form
from fullwatt.fixes.cache.packing import LARGE, MOST_SENT, PACK_BATCH, PACK_BYTES, PACKS_PER_WORKER, Copying, pack_batch, room_for, tensors_in_columns

COUNT = 32


class Times:
    """A clock, and what a sample costs on it."""

    def __init__(self, costs):
        self.now, self.costs, self.fetched = 1000.0, costs, 0

    def clock(self):
        return self.now

    def fetch(self):
        self.now += self.costs
        self.fetched += 1


class Transform:
    def __init__(self):
        self.strength = 0.1
        self.calls = 0


class Data(torch.utils.data.Dataset):
    def __init__(self):
        self.factor = 1.0
        self.epoch = 0
        self.length = COUNT
        self.values = torch.arange(float(COUNT))
        self.transform = Transform()
        self.draws = False

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        self.times.fetch()
        self.transform.calls += 1  # a twin shares it
        if self.draws:
            torch.rand(1)
        return self.values[i] * self.factor


def timed_data(costs):
    """The time is not among its attributes."""
    return type("Timed", (Data,), {"times": Times(costs)})()


def audits_of(data, rest=REST):
    packed = torch.arange(float(COUNT))
    form = Form(torch, packed[:1], packed[:2], 2)
    return Audits(torch, form, COUNT, range(COUNT), lambda index: [packed[index:index + 1]], rest, data.times.clock)


def epoch(audits, loader, batches, seconds):
    """An epoch of batches that take so long each; what was wrong, and the batches at which samples were fetched."""
    times, fetched_at = loader.dataset.times, []
    why = audits.begin(loader)
    for number in range(batches):
        before = times.fetched
        why = why or audits.batch([number % COUNT])
        if times.fetched > before:
            fetched_at.append(number)
        times.now += seconds
    return why, fetched_at


class ScheduleTest(unittest.TestCase):
    def run_epochs(self, costs, batches, seconds, epochs):
        loader = torch.utils.data.DataLoader(timed_data(costs))
        audits = audits_of(loader.dataset)
        outcomes = [epoch(audits, loader, batches, seconds) for _ in range(epochs)]
        self.assertEqual({why for why, _ in outcomes}, {""})
        return [fetched_at for _, fetched_at in outcomes]

    def test_cheap_samples_are_audited_at_the_start_of_every_epoch_and_at_growing_distances(self):
        first, second, third = self.run_epochs(costs=0.001, batches=200, seconds=1, epochs=3)
        self.assertEqual(first, [0, 2 * FIRST_AUDIT, 6 * FIRST_AUDIT])
        self.assertEqual(second[0], 0)
        self.assertEqual(third[0], 0)

    def test_the_distance_has_an_end(self):
        fetched_at = self.run_epochs(costs=0, batches=4 * RAREST_AUDIT, seconds=1, epochs=1)[0]
        self.assertEqual(fetched_at[-1] - fetched_at[-2], RAREST_AUDIT)

    def test_expensive_samples_are_audited_twice_and_then_for_one_part_in_a_hundred_of_the_time(self):
        epochs = self.run_epochs(costs=1, batches=100, seconds=0.1, epochs=30)
        self.assertEqual(epochs[:2], [[0], [0]])
        later = sum(len(fetched_at) for fetched_at in epochs[2:])
        self.assertIn(later, (28 * 100 * 0.1 // REST, 28 * 100 * 0.1 // REST + 1))

    def test_a_trial_has_but_those_that_must_be(self):
        loader = torch.utils.data.DataLoader(timed_data(costs=0.001))
        audits = audits_of(loader.dataset, math.inf)
        self.assertEqual([epoch(audits, loader, 200, 1)[1] for _ in range(4)], [[0], [0], [], []])


class NewsTest(unittest.TestCase):
    def setUp(self):
        self.data = timed_data(costs=1)  # so that only what must be is audited
        self.loader = torch.utils.data.DataLoader(self.data)
        self.audits = audits_of(self.data)
        for _ in range(2):
            self.assertEqual(epoch(self.audits, self.loader, 4, 0.001), ("", [0]))
        self.data.times.fetched = 0

    def test_without_news_nothing_is_fetched(self):
        self.assertEqual(epoch(self.audits, self.loader, 4, 0.001), ("", []))
        self.assertEqual(self.data.times.fetched, 0)

    def test_what_changed_without_meaning_is_audited_once(self):
        self.data.epoch = 3
        self.assertEqual(epoch(self.audits, self.loader, 4, 0.001), ("", []))
        self.assertEqual(self.data.times.fetched, PROBES)
        self.assertEqual(epoch(self.audits, self.loader, 4, 0.001), ("", []))
        self.assertEqual(self.data.times.fetched, PROBES)

    def test_what_changed_the_samples_is_told_before_the_first_batch(self):
        self.data.factor = 2.0
        self.assertIn("the data set changes", self.audits.begin(self.loader))

    def test_a_change_during_an_audited_epoch_is_told_at_the_next(self):
        self.data.times.now += 1000
        self.assertEqual(self.audits.begin(self.loader), "")
        self.data.factor = 2.0
        self.assertEqual(self.audits.batch([3]), "")  # worker processes would not have it either
        self.assertEqual(self.data.times.fetched, 1)
        self.assertIn("the data set changes", self.audits.begin(self.loader))

    def test_another_collate_function_is_told(self):
        self.loader.collate_fn = lambda samples: torch.stack(samples) + 1
        self.assertIn("the data set changes", self.audits.begin(self.loader))

    def test_another_length_is_told(self):
        self.data.length += 1
        self.assertIn("has 33 samples, and had 32", self.audits.begin(self.loader))

    def test_samples_that_became_random_are_told_and_nothing_is_drawn(self):
        self.data.draws = True
        before = torch.get_rng_state()
        self.assertIn("drawn at random", self.audits.begin(self.loader))
        self.assertTrue(torch.equal(before, torch.get_rng_state()))


class FingerprintTest(unittest.TestCase):
    def changed(self, thing, change):
        before = fingerprint(torch, thing)
        self.assertEqual(before, fingerprint(torch, thing))
        change()
        return before != fingerprint(torch, thing)

    def test_attributes_of_all_that_a_data_set_is_made_of_are_seen(self):
        data, transform = Data(), Transform()
        data.transforms = [transform]
        nested = torch.utils.data.ConcatDataset([torch.utils.data.Subset(data, range(4))])
        for thing, name, value in ((data, "epoch", 1), (data, "new", None), (transform, "strength", 0.2), (data, "values", data.values + 1)):
            self.assertTrue(self.changed(nested, lambda: setattr(thing, name, value)), name)

    def test_tensors_that_change_in_place_are_seen(self):
        data = Data()
        self.assertTrue(self.changed(data, lambda: data.values.add_(1)))
        with torch.inference_mode():
            data.values = torch.ones(2)  # has no count of its changes
        self.assertFalse(self.changed(data, lambda: None))

    def test_arrays_that_change_in_place_are_seen(self):
        data = Data()
        for array in (numpy.zeros(5), numpy.zeros((100, 100))[::2, ::3], numpy.array(["a", "b"]), numpy.array(2.0)):
            data.values = array
            self.assertTrue(self.changed(data, lambda: array.__setitem__(Ellipsis, "1")), array.dtype)
        for array in (numpy.zeros(0), numpy.array([None, int])):  # nothing to see
            data.values = array
            self.assertFalse(self.changed(data, lambda: None))

    def test_what_functions_have_caught_is_seen(self):
        strength, transform = 1, Transform()

        def change():
            nonlocal strength
            strength += 1
            transform.strength += 1

        for function in (lambda value: value * strength, functools.partial(print, transform), transform.__init__):
            self.assertTrue(self.changed(function, change), function)

    def test_functions_that_are_made_anew_are_the_same(self):
        class Slots:
            __slots__ = ("length", "__dict__")

            def __init__(self, length):
                self.length = length

        class Pads:
            def __init__(self, length):
                self.length = length

            def pad(self, samples):
                return samples

        class Longest(Pads):
            pass

        def padding(length):
            return lambda samples: samples[:length]

        shared = Pads(1)
        for make in (padding, Pads, lambda length: functools.partial(max, length, key=len)):
            one = make(3)
            self.assertTrue(is_same_function(torch, one, one))
            self.assertFalse(is_same_function(torch, one, make(4)))
            self.assertFalse(is_same_function(torch, one, Longest(3)))
        self.assertTrue(is_same_function(torch, padding(3), padding(3)))
        self.assertTrue(is_same_function(torch, Pads(3), Pads(3)))
        self.assertTrue(is_same_function(torch, functools.partial(max, 3, key=len), functools.partial(max, 3, key=len)))
        self.assertTrue(is_same_function(torch, shared.pad, shared.pad))
        # What these know cannot be seen.
        for make in (lambda: operator.itemgetter("a"), lambda: Slots(3), lambda: Pads([3]).pad, lambda: type("Names", (list,), {})("a")):
            self.assertFalse(is_same_function(torch, make(), make()))

    def test_equal_values_are_the_same_whatever_object_they_are(self):
        data = Data()
        self.assertFalse(self.changed(data, lambda: vars(data).update(factor=float("1.0"), epoch=0)))
        self.assertTrue(self.changed(data, lambda: vars(data).update(epoch=False)))

    def test_a_long_list_leaves_room_for_what_comes_after_it(self):
        data = Data()
        data.samples, data.transform = [("path", number) for number in range(10 * MOST_ITEMS)], Transform()
        self.assertTrue(self.changed(data, lambda: setattr(data.transform, "strength", 2)))
        self.assertTrue(self.changed(data, lambda: data.samples.append(("path", 0))))

    def test_no_code_of_the_program_runs(self):
        def trap(*_):
            raise AssertionError("called")

        names = ("__getattr__", "__getattribute__", "__eq__", "__hash__", "__len__", "__iter__", "__getitem__", "__bool__", "__repr__")
        for base in (object, list, dict, tuple):
            trapped = type("Trapped", (base,), dict({name: trap for name in names}, __class__=property(trap), value=property(trap)))
            self.assertFalse(self.changed([trapped()], lambda: None), base)
        hidden = type("Hidden", (), {"__dict__": property(trap)})
        self.assertFalse(self.changed([hidden()], lambda: None))

    def test_what_contains_itself_has_an_end(self):
        data = Data()
        data.me = [data]
        self.assertFalse(self.changed(data, lambda: None))


class PackBatchTest(unittest.TestCase):
    def test_large_samples_are_packed_one_by_one(self):
        self.assertEqual(pack_batch(100, 177 << 20, 8), 1)
        self.assertEqual(pack_batch(100_000, PACK_BYTES // 10, 8), 10)

    def test_every_worker_gets_several_batches(self):
        for count, workers in ((100, 8), (64, 2), (1000, 16), (5, 4), (1000, 0)):
            size = pack_batch(count, 100, workers)
            self.assertGreaterEqual(-(-count // size), min(count, PACKS_PER_WORKER * workers), (count, workers))

    def test_tensors_that_workers_send_one_by_one_are_open_files(self):
        probes = [torch.zeros(2, 3), ["a", "b"], [(torch.zeros(1), {"boxes": torch.zeros(2)}), (torch.zeros(1), None)], [torch.zeros(3), torch.zeros(4)]]
        tensors = tensors_in_columns(torch, probes)
        self.assertEqual(tensors, 3)
        for workers in (1, 4, 16):
            self.assertLessEqual(pack_batch(100_000, 100, workers, tensors) * tensors * workers * 2, MOST_SENT)
        self.assertEqual(pack_batch(100_000, 100, 64, tensors), 1)
        self.assertEqual(pack_batch(100_000, 100, 0, tensors), PACK_BATCH)

    def test_there_is_a_most_and_a_least(self):
        self.assertEqual(pack_batch(1_000_000, 100, 8), PACK_BATCH)
        self.assertEqual(pack_batch(1_000_000, 0, 0), PACK_BATCH)
        self.assertEqual(pack_batch(2, 1 << 40, 16), 1)


class CopyingTest(unittest.TestCase):
    def test_rows_lie_in_order_also_in_large_pages(self):
        for dtype in (torch.float32, torch.bool, torch.bfloat16, torch.int64):
            leaf = torch.ones((1, LARGE // 64), dtype=dtype)
            leaves = [room_for(torch, 64, leaf), room_for(torch, 64, torch.ones((1, 2)))]
            self.assertEqual((leaves[0].shape, leaves[0].dtype), ((64, LARGE // 64), dtype))
            with Copying(leaves) as copying:
                for number in range(16):
                    rows = torch.arange(4 * number, 4 * number + 4).reshape(4, 1)
                    copying.add([(rows % 2).to(dtype).expand(4, LARGE // 64), rows.expand(4, 2).float()], 4)
            self.assertEqual(copying.begun, 64)
            self.assertTrue(torch.equal(leaves[1][:, 0], torch.arange(64).float()))
            self.assertTrue(torch.equal(leaves[0][:, -1], (torch.arange(64) % 2).to(dtype)))

    def test_what_fails_while_copying_is_told(self):
        with self.assertRaises(RuntimeError), Copying([torch.zeros(4, 2)]) as copying:
            copying.add([torch.zeros(4, 3)], 4)


if __name__ == "__main__":
    unittest.main()
