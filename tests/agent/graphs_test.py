"""What a capture stands on, calls that a graph serves, and how its gradients are clipped; captures themselves are in captured_test, and CUDA's own in gpu_fixes_test."""

import math
import types
import unittest
from unittest import mock

import support  # noqa: F401  (puts the agent on the path)
import torch
from fullwatt.fixes import clipping, graphs
from fullwatt.fixes import captured as capturing
from fullwatt.fixes.captured import Captured, Standing, Watch
from fullwatt.fixes.models import Refused
from fullwatt.patches import Patches


class StandingTest(unittest.TestCase):
    def test_the_model_computes_with_the_same_memory_and_gets_its_own_back(self):
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
        own = list(model.parameters())
        with Standing(torch, model) as standing:
            for parameter, other in zip(own, model.parameters()):
                self.assertIsNot(other, parameter)
                self.assertEqual(other.data_ptr(), parameter.data_ptr())
            self.assertFalse(standing.have_moved())
        self.assertTrue(all(after is before for after, before in zip(model.parameters(), own)))

    def test_a_recurrent_module_takes_them_for_its_own(self):
        """Otherwise it would move them, on a GPU, and a graph would go on with the weights of that moment."""
        lstm = torch.nn.LSTM(3, 5, num_layers=2)
        with Standing(torch, lstm):
            self.assertFalse(lstm._weights_have_changed())
            self.assertTrue(all(weight is getattr(lstm, name) for weight, name in zip(lstm._flat_weights, lstm._flat_weights_names)))
        self.assertFalse(lstm._weights_have_changed())

    def test_moved_ones_are_noticed(self):
        model = torch.nn.Linear(4, 4)
        with Standing(torch, model) as standing:
            model.weight.data = model.weight.data.clone()
            self.assertTrue(standing.have_moved())


class Cache:
    """An object of the program that is no module."""

    last = None


@mock.patch.object(capturing, "KIND", "cpu")
class LeavingTest(unittest.TestCase):
    """What a pass leaves in attributes, as it is found before a capture."""

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.kept = torch.nn.Linear(2, 2), None
            self.cache = Cache()

        def forward(self, x):
            self.leave(x)
            return self.inner(x)

    def passes(self, leave):
        """Two of them, looked at as the last ones before a capture."""
        net = self.Net()
        net.leave = types.MethodType(leave, net)
        captured = Captured.__new__(Captured)
        captured._torch, captured._module, captured._arguments, captured._patches, captured._rest = torch, net, ([torch.ones(3, 2)], {}), Patches(), None
        for _ in range(2):
            captured._pass(net)
        with captured._reads_nothing_left():
            return net, captured, captured._pass(net)

    def test_tensors_are_outputs(self):
        def leave(net, x):
            net.kept = net.inner(x)
            net.cache.last = {"a": x + 1, "b": [x + 2]}

        net, captured, outputs = self.passes(leave)
        self.assertEqual([left.name for left in captured._left], ["kept", "last"])
        self.assertIs(captured._left[1].values, vars(net.cache))
        self.assertEqual([float(output.sum()) for output in outputs[2:]], [12.0, 18.0])
        self.assertTrue(outputs[1].requires_grad)
        replayed = [torch.full((3, 2), float(number)) for number in range(4)]
        captured._function, captured._trained, captured.replays = types.SimpleNamespace(apply=lambda *_: replayed), [], 0
        self.assertIs(captured.replay([]), replayed[0])
        self.assertIs(net.kept, replayed[1])
        self.assertEqual(net.cache.last, {"a": replayed[2], "b": [replayed[3]]})

    def test_what_is_read_again_is_refused(self):
        def sums(net, x):
            net.kept = [net.inner(x).detach() + (net.kept[0] if net.kept else 0)]

        def counts(net, x):
            net.cache.last = x if net.cache.last is None else net.cache.last + x

        for leave, name in ((sums, "kept"), (counts, "last")):
            with self.assertRaisesRegex(Refused, "it goes on from what its last pass has left in " + name):
                self.passes(leave)

    def test_what_is_new_in_each_pass_may_be_read(self):
        def leave(net, x):
            net.kept = []
            net.kept.append(x + 1)
            net.cache.last = net.kept[0] * 2

        self.assertEqual([left.name for left in self.passes(leave)[1]._left], ["kept", "last"])


class WatchTest(unittest.TestCase):
    def setUp(self):
        patches, self.model = Patches(), torch.nn.Sequential(torch.nn.Linear(2, 2))
        self.addCleanup(patches.restore)
        self.model.scale = 2.0
        self.watch = Watch(types.SimpleNamespace(torch=torch, patches=patches), self.model)

    def test_only_news_change_the_model(self):
        model, other = self.model, torch.nn.Linear(2, 2)
        model.train()
        model.scale = model.scale
        other.scale = 1.0
        self.assertEqual(self.watch.changes, 0)
        for change in (model.eval, lambda: setattr(model[0], "new", 1), lambda: model.register_buffer("new", torch.zeros(1)), lambda: model.append(other),
                       lambda: delattr(model, "scale"), lambda: setattr(model[0], "weight", torch.nn.Parameter(torch.zeros(2, 2)))):  # fmt: skip
            before = self.watch.changes
            change()
            self.assertGreater(self.watch.changes, before)

    def test_seeds(self):
        for seed in (lambda: torch.manual_seed(1), torch.seed, lambda: torch.cuda.manual_seed(1), lambda: torch.cuda.random.manual_seed_all(1)):
            before = self.watch.seedings
            seed()
            self.assertGreater(self.watch.seedings, before)
        self.assertEqual(self.watch.changes, 0)


class StandIn:
    """For what is captured: it knows the calls that it replays."""

    def __init__(self, tools, module, watch, call, key, arguments):
        self.key = key
        self.replays = 1  # no audit is due
        self.outdated = False

    def fits(self):
        return True

    def is_outdated(self):
        return self.outdated

    def is_busy(self):
        return False

    def replay(self, args):
        return self


@mock.patch.object(graphs, "Captured", StandIn)
@mock.patch.object(capturing, "KIND", "cpu")
class TurningTest(unittest.TestCase):
    """What is turned on inside of a graph takes another graph."""

    def setUp(self):
        self.inside = ()
        first_passes = types.SimpleNamespace(why_no_graph="")
        models = types.SimpleNamespace(all_seen=lambda: True, turned_on=lambda: self.inside, first_passes=first_passes)
        self.told = []
        report = types.SimpleNamespace(in_force=lambda *_: None, state=lambda _: "in-force", undone=lambda _, why: self.told.append(why))
        patches = Patches()
        self.addCleanup(patches.restore)
        tools, self.all_models = types.SimpleNamespace(torch=torch, models=models, report=report, patches=patches), []
        self.graphed, self.other = [graphs.Graphed(tools, torch.nn.Linear(2, 2), lambda x: "plain", self.all_models) for _ in range(2)]
        self.all_models += [self.graphed, self.other]

    def calls(self, count, batch=4):
        return [self.graphed(torch.zeros(batch, 2)) for _ in range(count)]

    def test_a_graph_is_captured_at_the_third_call_and_serves_its_own_shape(self):
        first, second, third, fourth = self.calls(4)
        self.assertEqual((first, second), ("plain", "plain"))
        self.assertIsInstance(third, StandIn)
        self.assertIs(fourth, third)
        self.assertEqual(self.calls(5, batch=3), ["plain"] * 5)
        self.assertEqual(self.calls(1), [third])

    def test_each_state_has_its_own(self):
        self.inside = (False,)
        without = self.calls(3)[-1]
        self.inside = (True,)
        plain, again, with_it = self.calls(3)
        self.assertEqual((plain, again), ("plain", "plain"))
        self.assertIsInstance(with_it, StandIn)
        self.assertIsNot(with_it, without)
        self.inside = (False,)
        self.assertEqual(self.calls(2), [without, without])
        self.inside = (True,)
        self.assertEqual(self.calls(1), [with_it])


    def test_an_outdated_one_is_captured_anew_but_not_for_ever(self):
        for _ in range(graphs.MOST_CAPTURES):
            graph = self.calls(3)[-1]
            self.assertIs(self.calls(1)[0], graph)
            graph.outdated = True
            plain, again, other = self.calls(3)
            self.assertEqual((plain, again), ("plain", "plain"))
            self.assertIsInstance(other, StandIn)
            self.assertIsNot(other, graph)
        other.outdated = True
        self.assertEqual(self.calls(4), ["plain"] * 4)
        self.assertIn("seeds the GPU's random numbers again and again", self.told[0])


    def test_the_fix_is_in_force_as_long_as_one_model_has_a_graph(self):
        self.calls(3)
        for _ in range(3):
            self.other(1)
        self.assertEqual(self.told, [])
        self.graphed._give_up("it is over", graphs.Call(torch, lambda x: "plain", (1,), {}))
        self.assertEqual(self.told, ["it is over"])


class DifferenceTest(unittest.TestCase):
    def found(self, *pairs):
        return graphs.difference(torch, *map(list, zip(*pairs)))

    def test_it_is_the_largest_share(self):
        self.assertAlmostEqual(self.found((torch.tensor([3.0, 4.0]),) * 2, (torch.tensor([1.1]), torch.tensor([1.0]))), 0.1, places=6)

    def test_numbers_that_are_none_are_no_rounding(self):
        self.assertEqual(self.found((torch.tensor([math.nan]), torch.tensor([1.0]))), math.inf)

    def test_what_tells_nothing_is_left_out(self):
        pairs = [(torch.tensor([1]), torch.tensor([2])), (torch.ones(1), torch.zeros(1)), (torch.ones(1), torch.tensor([math.inf])), (torch.ones(0), torch.ones(0))]
        self.assertEqual(self.found(*pairs), 0.0)


class ClippingTest(unittest.TestCase):
    def setUp(self):
        patches = Patches()
        clipping.in_one_piece(types.SimpleNamespace(torch=torch, patches=patches))
        self.addCleanup(patches.restore)
        self.model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
        torch.manual_seed(0)
        self.flat = torch.randn(26)

    def put(self, flat):
        """Gives the parameters gradients that lie in it one after the other."""
        begin = 0
        for parameter in self.model.parameters():
            parameter.grad = flat[begin:begin + parameter.numel()].view_as(parameter)
            begin += parameter.numel()

    def clipped(self, limit, **options):
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit, **options)
        return torch.cat([norm.reshape(1)] + [parameter.grad.reshape(-1) for parameter in self.model.parameters()])

    def test_they_are_clipped_as_by_torch(self):
        for limit in (0.1, 100.0):
            self.put(self.flat.clone())
            self.assertEqual(clipping.piece_of(torch, [parameter.grad for parameter in self.model.parameters()]).numel(), 26)
            found = self.clipped(limit)
            for parameter in self.model.parameters():
                parameter.grad = None
            self.put(self.flat.clone())
            for parameter in self.model.parameters():
                parameter.grad = parameter.grad.clone()
            torch.testing.assert_close(found, self.clipped(limit))

    def test_others_are_left_to_torch(self):
        self.put(self.flat)
        parameters = list(self.model.parameters())
        for gradients in ([], [parameters[0].grad], [parameter.grad for parameter in reversed(parameters)], [parameters[0].grad, parameters[2].grad]):
            self.assertIsNone(clipping.piece_of(torch, gradients))
        self.assertIsNone(clipping.piece_of(torch, [torch.nn.Parameter(parameter.grad) for parameter in parameters]), "of another class")
        parameters[1].grad = parameters[1].grad.clone()
        self.assertIsNone(clipping.piece_of(torch, [parameter.grad for parameter in parameters]))
        sum_of_all = self.flat.abs().sum()
        torch.testing.assert_close(self.clipped(0.1, norm_type=1.0)[0], sum_of_all)


if __name__ == "__main__":
    unittest.main()
