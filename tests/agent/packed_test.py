"""Where the samples of a batch lie: looked up before they are asked for, and right whatever becomes of the order."""

import itertools
import types
import unittest

import torch

from support import ROOT  # noqa: F401  (the agent's path)

from fullwatt.fixes.cache.packed import MORE_AT_ONCE, Batches, Packed

LENGTH, SIZE = 1000, 3


def batches_of(numbers, size=SIZE):
    numbers = iter(numbers)
    return iter(lambda: list(itertools.islice(numbers, size)), [])


class BatchesTest(unittest.TestCase):
    def setUp(self):
        self.looked_up = []
        self.packed = Packed(types.SimpleNamespace(torch=torch), [torch.zeros(LENGTH)], LENGTH, None, torch.arange(LENGTH) + 5, None)
        order = self.packed.order
        self.packed.order = lambda indices: self.looked_up.append(len(indices)) or order(indices)

    def rows(self, batches):
        return [None if places is None else (places.host - 5).tolist() for _, places in batches]

    def read(self, batches):
        return list(iter(lambda: next(batches, None), None))

    def test_an_epoch_is_looked_up_in_few_parts(self):
        numbers = list(reversed(range(LENGTH)))
        read = self.read(Batches(batches_of(numbers), self.packed, True))
        self.assertEqual(self.rows(read), [indices for indices, _ in read])
        self.assertEqual([index for indices, _ in read for index in indices], numbers)
        self.assertEqual(self.looked_up[:2], [SIZE, SIZE * MORE_AT_ONCE])
        self.assertEqual(len(self.looked_up), 4)

    def test_who_reads_one_batch_pays_for_one(self):
        next(Batches(batches_of(range(LENGTH)), self.packed, True))
        self.assertEqual(self.looked_up, [SIZE])

    def test_an_order_that_is_not_known_is_followed_batch_by_batch(self):
        drawn = []
        batches = Batches((drawn.append(batch) or batch for batch in batches_of(range(12))), self.packed, False)
        next(batches)
        self.assertEqual(drawn, [[0, 1, 2]])
        self.assertEqual(self.rows(self.read(batches)), [[3, 4, 5], [6, 7, 8], [9, 10, 11]])

    def test_batches_that_are_grouped_anew_within_an_epoch(self):
        batches = Batches(batches_of(range(100)), self.packed, True)
        next(batches)
        rest = itertools.chain.from_iterable(batches._sampler_iter)
        batches._sampler_iter = batches_of(rest, 7)  # some lie on both sides of what is looked up at once
        read = self.read(batches)
        self.assertEqual(self.rows(read), [indices for indices, _ in read])
        self.assertEqual([index for indices, _ in read for index in indices], list(range(3, 100)))

    def test_what_is_no_number_of_a_sample_is_left_to_the_data_set(self):
        for odd in ([(0, 64), (1, 64)], [-1, 2], [LENGTH], ["a"], [2**70], []):
            self.assertEqual(self.rows([next(Batches(iter([odd]), self.packed, False))]), [None], odd)
            self.assertIsNone(self.packed.batch(None))


if __name__ == "__main__":
    unittest.main()
