"""Batches that wait elsewhere: whatever a program does with one is as with a tensor of the CPU. The CPU stands for the GPU here."""

import copy
import io
import unittest
from unittest import mock

import numpy
import torch

from support import ROOT  # noqa: F401  (the agent's path)

from fullwatt.fixes.cache import promised
from fullwatt.fixes.cache.column import Column
from fullwatt.fixes.cache.promised import LEARNING_BATCHES, Order, Placement, make_kind
from fullwatt.fixes.cache.values import is_same
from fullwatt.fixes.cache.sending import Sent

KIND = make_kind(torch)
HOST = torch.arange(12.0).reshape(3, 4)
THERE = HOST + 100  # so that it can be told which one was used


def promise():
    return KIND(HOST.shape, HOST.dtype, make_host=HOST.clone, make=THERE.clone, device=torch.device("cpu"))


class PromiseTest(unittest.TestCase):
    def test_its_form_is_known_without_its_content(self):
        given = promise()
        self.assertEqual((given.shape, given.dtype, given.device.type, len(given), given.size(1), given.dim()), (HOST.shape, HOST.dtype, "cpu", 3, 4, 2))
        self.assertIsInstance(given, torch.Tensor)
        self.assertTrue(torch.equal(given.to("cpu"), THERE))

    def test_sending_it_gives_what_is_there(self):
        self.assertTrue(torch.equal(promise().to("cpu"), THERE))
        self.assertTrue(torch.equal(promise().to(torch.device("cpu"), non_blocking=True), THERE))
        self.assertEqual(promise().to("cpu", torch.float64).dtype, torch.float64)
        self.assertTrue(torch.equal(promise()[1].to("cpu"), THERE[1]))
        given = promise()
        given.to("cpu").zero_()
        self.assertTrue(torch.equal(given.to("cpu"), THERE), "each sending is a copy of its own")

    def test_everything_else_happens_to_a_tensor_of_the_cpu(self):
        for use in (lambda x: x + 1, lambda x: x[0] * 1, lambda x: x[:, 1], lambda x: x.float(), lambda x: torch.stack([x, x]), lambda x: x.view(-1),
                    lambda x: torch.from_numpy(x.numpy()), lambda x: torch.from_numpy(numpy.asarray(x)), lambda x: torch.tensor(x.tolist()), lambda x: x.mean(),
                    lambda x: torch.nn.functional.linear(x, torch.ones(2, 4)), copy.deepcopy, lambda x: torch.stack(list(x)), lambda x: x.half(), lambda x: x.to(torch.float16)):  # fmt: skip
            result = use(promise())
            self.assertIs(type(result), torch.Tensor)
            self.assertTrue(torch.equal(result, use(HOST)))

    def test_it_is_saved_as_an_ordinary_tensor(self):
        file = io.BytesIO()
        torch.save({"x": promise()}, file)
        file.seek(0)
        self.assertTrue(torch.equal(torch.load(file)["x"], HOST))

    def test_what_the_program_changes_is_what_it_sends(self):
        given = promise()
        given.mul_(2)
        self.assertTrue(torch.equal(given.to("cpu"), 2 * HOST))
        given = promise()
        row = given[1]
        given.mul_(0)
        self.assertTrue(torch.equal(row.to("cpu"), torch.zeros(4)))
        given = promise()
        given[1].add_(1)
        self.assertTrue(torch.equal(given.to("cpu")[1], HOST[1] + 1))

    def test_a_row_that_is_not_there_is_an_error(self):
        with self.assertRaises(IndexError):
            promise()[3]


class PlacementTest(unittest.TestCase):
    def test_without_a_gpu_batches_are_gathered_here(self):
        placement = Placement(torch, [HOST], len(HOST), 1 << 30 if not torch.cuda.is_available() else 0)
        self.assertFalse(placement.is_learning or placement.is_whole)
        batch = placement.gather(Order(torch.tensor([1, 2, 0])).part(1, 3))
        self.assertIs(type(batch[0]), torch.Tensor)
        self.assertTrue(torch.equal(batch[0], HOST[[2, 0]]))

    def test_what_is_not_sent_is_not_placed(self):
        placement = Placement(torch, [HOST], len(HOST), 0)
        placement._left = LEARNING_BATCHES
        for _ in range(LEARNING_BATCHES):
            self.assertTrue(torch.equal(placement.gather(Order(torch.tensor([1])).part(0, 1))[0] + 0, HOST[[1]]))
            told = placement.learned()
        self.assertIn("only sent", told)
        self.assertFalse(placement.is_learning or placement.is_whole)


    def test_values_beside_it_stay_here(self):
        """Names need no thread that goes ahead, tensors of different sizes do."""
        for values, is_whole in ((["a", "b", "c"], True), ([torch.zeros(1), torch.zeros(2), torch.zeros(3)], False)):
            column = Column(torch, 3, 1 << 20)
            column[0:3] = values
            placement = Placement(torch, [HOST, column], len(HOST), 1 << 20)
            self.assertFalse(placement.is_whole)
            placement._left = LEARNING_BATCHES
            places = Order(torch.tensor([1, 2, 0])).part(1, 3)
            with mock.patch.object(torch.cuda, "mem_get_info", return_value=(1 << 30, 1 << 30)):
                for _ in range(LEARNING_BATCHES):
                    placement._sent[0] = torch.device("cpu")
                    self.assertTrue(is_same(torch, placement.gather(places)[1], [values[2], values[0]]))
                    told = placement.learned()
            self.assertIn("on cpu", told)
            self.assertEqual(placement.is_whole, is_whole)
            self.assertTrue(is_same(torch, placement.gather(places)[1], [values[2], values[0]]))


class Arrived:
    """Stands for an event, a stream and a sender."""

    def __init__(self, *_):
        self.waited = []

    def send(self, leaf, places):
        host = leaf.index_select(0, places.host)
        return Sent(mock.Mock(), host, mock.Mock(wraps=host + 100, device=torch.device("cpu"), record_stream=self.waited.append), self)


class SendingTest(unittest.TestCase):
    def decided(self, free=1 << 30, goes_ahead=True, sender=Arrived, most_bytes=16, length=len(HOST)):
        """A placement of samples that the program was seen to send; unless more bytes are allowed they do not fit."""
        placement = Placement(torch, [HOST], length, most_bytes, goes_ahead)
        placement._left, placement._sent, placement._longest = 1, [torch.device("cpu")], 2
        with mock.patch.object(torch.cuda, "mem_get_info", return_value=(free, free)), mock.patch.object(promised, "Sender", sender):
            return placement, placement.learned()

    def part(self, placement):
        return placement.gather(Order(torch.tensor([1, 2, 0])).part(1, 3))[0]

    def test_what_does_not_fit_is_sent_ahead(self):
        placement, told = self.decided()
        self.assertIn("do not fit", told)
        self.assertIn("sent ahead", told)
        self.assertFalse(placement.is_whole, "its batches are made here")
        given = self.part(placement)
        self.assertNotIsInstance(given.to("cpu"), torch.Tensor, "what was sent arrives")
        self.assertTrue(torch.equal(given.to("cpu"), HOST[[2, 0]]), "whoever asks again gets a copy")

    def test_a_part_of_the_data_set_goes_there_only_where_all_of_it_would(self):
        room = 2 * HOST.nbytes
        placement, told = self.decided(most_bytes=room, length=2 * len(HOST))
        self.assertIn("on cpu", told)
        self.assertTrue(placement.is_whole)
        placement, told = self.decided(most_bytes=room, length=2 * len(HOST) + 1)
        self.assertIn("do not fit", told)
        self.assertFalse(placement.is_whole)

    def test_what_the_program_changes_here_is_what_it_sends(self):
        given = self.part(self.decided()[0])
        given.mul_(2)
        self.assertTrue(torch.equal(given.to("cpu"), 2 * HOST[[2, 0]]))

    def test_nobody_sends_where_there_is_no_room_or_nobody_goes_ahead(self):
        for options in ({"free": 64}, {"goes_ahead": False}):
            placement, told = self.decided(**options)
            self.assertNotIn("ahead", told)
            self.assertIs(type(self.part(placement)), torch.Tensor)

    def test_a_gpu_that_is_full_after_all_ends_it(self):
        class Full(Arrived):
            def send(self, leaf, places):
                raise RuntimeError("CUDA out of memory")

        placement, _ = self.decided(sender=Full)
        self.assertTrue(torch.equal(self.part(placement), HOST[[2, 0]]))
        self.assertEqual(placement._is_sent, [False])


if __name__ == "__main__":
    unittest.main()
