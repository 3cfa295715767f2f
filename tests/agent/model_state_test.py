"""What a pass of a model changes besides computing, and how that is put back."""

import collections
import random
import types
import unittest
from unittest import mock

import support  # noqa: F401  (puts the agent on the path)
import torch
from fullwatt.fixes.model_state import State
from fullwatt.fixes.random_state import can_draw_from_a_copy, gpu_draws_from_a_copy

COUNTS = "its modules count or remember something in Python"


class StateTest(unittest.TestCase):
    """What a pass changes besides computing is put back, and told where a graph would not do it again."""

    def setUp(self):
        self.on_gpu = 1
        for name, stand_in in (("is_initialized", lambda: True), ("get_rng_state", lambda: self.on_gpu), ("set_rng_state", lambda state: setattr(self, "on_gpu", state))):
            patch = mock.patch.object(torch.cuda, name, stand_in)
            patch.start()
            self.addCleanup(patch.stop)
        self.model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
        self.state = State(torch, self.model)

    def test_buffers_and_the_random_numbers_of_the_gpu(self):
        self.model(torch.zeros(3, 2))
        self.on_gpu = 2
        self.assertEqual(self.state.restore(), "")
        self.assertEqual((int(self.model[1].num_batches_tracked), self.on_gpu), (0, 1))

    def test_the_generator_of_the_gpu_is_not_seeded_where_nothing_was_drawn(self):
        with mock.patch.object(torch.cuda, "set_rng_state", self.fail):
            self.assertEqual(self.state.restore(), "")

    @unittest.skipUnless(can_draw_from_a_copy(torch), "this torch cannot")
    def test_drawing_from_a_copy(self):
        """The program's own generator is back afterwards, whatever happens."""
        generator = mock.MagicMock()
        with mock.patch.object(torch.cuda, "default_generators", [generator]), mock.patch.object(torch.cuda, "current_device", lambda: 0):
            with self.assertRaises(KeyError), gpu_draws_from_a_copy(torch):
                generator.graphsafe_set_state.assert_called_once_with(generator.clone_state())
                raise KeyError
        generator.graphsafe_set_state.assert_called_with(generator.graphsafe_get_state())

    def test_passes_of_the_program_go_on_with_buffers_that_were_put_back(self):
        self.model.eval()
        waiting = self.model(torch.zeros(3, 2)).sum()  # keeps the statistics for its gradients
        self.model.train()
        self.model(torch.zeros(3, 2))
        self.state.restore()
        waiting.backward()
        self.assertIsNotNone(self.model[0].weight.grad)

    def test_random_numbers_of_the_cpu(self):
        before = torch.get_rng_state()
        torch.rand(1)
        self.assertEqual(self.state.restore(), "it draws random numbers on the CPU")
        self.assertTrue(torch.equal(torch.get_rng_state(), before))

    def test_random_numbers_of_its_own(self):
        own = self.model[0].own = random.Random(1)
        expected = random.Random(1).random()
        self.assertEqual(self.changed_by(lambda part: part.own.random()), "it draws random numbers on the CPU")
        self.assertEqual(own.random(), expected)

    def changed_by(self, change):
        """What is told of that; nothing of it stays."""
        own = [dict(vars(part)) for part in self.model.modules()]
        state = State(torch, self.model)
        change(self.model[0])
        told = state.restore()
        self.assertEqual([list(values) for values in own], [list(vars(part)) for part in self.model.modules()])
        self.assertTrue(all(vars(part)[name] is value for part, values in zip(self.model.modules(), own) for name, value in values.items()))
        return told

    def test_attributes(self):
        self.model[0].calls = 0
        self.assertEqual(self.changed_by(lambda part: setattr(part, "calls", part.calls + 1)), COUNTS)
        self.assertEqual(self.changed_by(lambda part: setattr(part, "new", None)), COUNTS)
        self.assertEqual(self.changed_by(lambda part: setattr(part, "calls", 0)), "")

    def test_contents(self):
        """Tensors in them are compared by what they are, never by their numbers."""
        for kept, change in ((["a", torch.zeros(2)], lambda kept: kept.append(torch.ones(2))), ({"a": torch.zeros(2)}, lambda kept: kept.update(a=torch.zeros(2))),
                             ({1}, lambda kept: kept.add(2)), (collections.deque([1]), collections.deque.clear), ({"a": [torch.zeros(2)]}, lambda kept: kept["a"].clear())):
            self.model[0].kept = kept
            before = deep(kept)
            self.assertEqual(self.changed_by(lambda part: change(part.kept)), COUNTS)
            self.assertEqual(list(map(id, deep(kept))), list(map(id, before)))

    def test_containers_and_objects_that_are_others_now(self):
        for kept, other in (([torch.zeros(2)], [torch.zeros(2)]), ((torch.zeros(2), 1), (torch.zeros(2), 1)), (types.SimpleNamespace(a=1), types.SimpleNamespace(a=1))):
            self.model[0].kept = kept
            self.assertEqual(self.changed_by(lambda part: setattr(part, "kept", other)), COUNTS)
        kept = [torch.zeros(2), ("a", 1)]
        self.model[0].kept = kept
        state = State(torch, self.model)
        self.model[0].kept = [kept[0], ("a", 1)]
        self.assertEqual(state.restore(), "")

    def test_objects_that_are_no_modules(self):
        kept = self.model[0].kept = types.SimpleNamespace(calls=0, mean=torch.zeros(2))
        own = kept.mean
        self.assertEqual(self.changed_by(lambda part: setattr(part.kept, "calls", 1)), COUNTS)
        self.assertEqual(self.changed_by(lambda part: setattr(part.kept, "mean", torch.ones(2))), COUNTS)
        self.assertEqual((kept.calls, kept.mean is own), (0, True))
        state = State(torch, self.model)
        kept.calls = 2
        self.assertFalse(state.is_changed())  # the program's own doing

    def test_numbers_in_tensors(self):
        """They are put back; a graph would change them again."""
        wide = torch.zeros(1).expand(3)
        self.model[0].kept, self.model[0].all, self.model[0].wide = torch.zeros(2), [torch.zeros(2)], wide
        with torch.inference_mode():
            self.model[0].others = [torch.zeros(2), torch.eye(2).to_sparse()]
        self.assertEqual(self.changed_by(lambda part: (part.kept.add_(1), part.all[0].add_(1))), "")
        self.assertEqual((self.model[0].kept.sum(), self.model[0].all[0].sum()), (0, 0))

    def test_tensors(self):
        """Another one in an attribute counts, unless it is excused; in the place of a buffer or a parameter it always does."""
        part, norm = self.model
        own = part.seen = torch.zeros(2)
        state = State(torch, self.model)
        self.assertFalse(state.is_changed())
        part.seen = torch.zeros(2)
        self.assertTrue(state.is_changed())
        self.assertFalse(state.is_changed([(vars(part), "seen")]))
        norm.running_mean, mean = torch.ones(2), norm.running_mean
        self.assertTrue(state.is_changed([(vars(part), "seen")]))
        self.assertEqual(state.restore([(vars(part), "seen")]), "it puts other tensors in the place of its buffers")
        self.assertIs(norm.running_mean, mean)
        self.assertIs(part.seen, own)
        weight = part.weight
        state = State(torch, self.model)
        part.weight = torch.nn.Parameter(torch.zeros(2, 2))
        self.assertTrue(state.is_changed())
        self.assertEqual(state.restore(), "it puts other tensors in the place of its parameters")
        self.assertEqual([name for name, _ in part.named_parameters()], ["weight", "bias"])
        self.assertIs(part.weight, weight)

    def test_modules(self):
        state = State(torch, self.model)
        self.model[0] = torch.nn.Linear(2, 2)
        self.assertTrue(state.is_changed())
        state = State(torch, self.model)
        self.model.append(torch.nn.ReLU())
        self.assertTrue(state.is_changed())

    def test_what_the_program_collects_is_its_own(self):
        """Only values and tensors that it sets are changes of the model."""
        self.model.losses = []
        state = State(torch, self.model)
        self.model.losses.append(1.0)
        self.assertFalse(state.is_changed())
        self.model.losses = []
        self.assertFalse(state.is_changed())
        self.model.losses = None
        self.assertTrue(state.is_changed())


def deep(container):
    """It, and what is in it."""
    return [container, *[part for value in (container.values() if isinstance(container, dict) else container) for part in (deep(value) if isinstance(value, list) else [value])]]


if __name__ == "__main__":
    unittest.main()
