"""Trainings whose passes are captured, beside the same ones without: everything that comes out is equal to the bit. Graphs are those of cpu_graphs; gpu_fixes_test has CUDA's own."""

import collections
import copy
import types
import unittest

import cpu_graphs
import torch
from fullwatt.fixes import graphs
from fullwatt.patches import Patches

STEPS = 12


class Report:
    """The last that was told."""

    def __init__(self):
        self.told, self.why = "waiting", ""

    def state(self, _):
        return self.told

    def in_force(self, _, why):
        self.told, self.why = "in-force", why

    def undone(self, _, why):
        self.told, self.why = "undone", why

    def refused(self, _, why):
        self.told, self.why = "refused", why


class Net(torch.nn.Module):
    """What the tests derive from."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Tanh(), torch.nn.Linear(8, 2))


class Cache:
    """An object that is no module."""

    last = 0.0


class CapturedTest(unittest.TestCase):
    def setUp(self):
        self.addCleanup(cpu_graphs.in_place().close)
        self.report = Report()
        torch.manual_seed(0)

    def graphed(self, model):
        """The model, whose calls are captured."""
        patches = Patches()
        self.addCleanup(patches.restore)
        models = types.SimpleNamespace(all_seen=lambda: True, turned_on=lambda: (), first_passes=types.SimpleNamespace(why_no_graph=""))
        tools = types.SimpleNamespace(torch=torch, models=models, report=self.report, patches=patches)
        model._compiled_call_impl = graphs.Graphed(tools, model, model._call_impl)
        return model

    def train(self, model, loss_of, each_step=lambda model, step: None):
        """All that can be seen of a training."""
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        generator, seen = torch.Generator().manual_seed(1), []
        for step in range(STEPS):
            x, y = torch.randn(6, 4, generator=generator), torch.randn(6, 2, generator=generator)
            loss = loss_of(model, x, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            each_step(model, step)
            seen.append(loss.item())
        return seen, [value.tolist() for value in model.state_dict().values()], torch.rand(1).item()

    def both(self, model, loss_of, *rest):
        """Trains it with and without, and compares."""
        other = copy.deepcopy(model)
        before = torch.get_rng_state()
        plain = self.train(other, loss_of, *rest)
        torch.set_rng_state(before)
        found = self.train(self.graphed(model), loss_of, *rest)
        self.assertEqual(found, plain)
        return other

    def assert_in_force(self):
        self.assertEqual((self.report.told, self.report.why), ("in-force", "around Net"))

    def assert_not(self, told, why):
        self.assertEqual(self.report.told, told)
        self.assertIn(why, self.report.why)


def squares(model, x, y):
    return (model(x) - y).pow(2).mean()


class ArgumentsTest(CapturedTest):
    class Net(Net):
        def forward(self, x, parts=(), scale=1.0, names=None):
            out = self.inner(x) * scale
            for part in parts:
                out = out + part["a"]
            return {"out": out, "names": names, "sum": (out.sum(), 3)}

    def loss(self, *args, **kwargs):
        def loss_of(model, x, y):
            given = [{"a": y * 0.1}, {"a": x[:, :2]}]
            found = model(x, *[given if value is ... else value for value in args], **{name: given if value is ... else value for name, value in kwargs.items()})
            self.assertEqual((found["names"], found["sum"][1]), (kwargs.get("names"), 3))
            return (found["out"] - y).pow(2).mean() + 0.1 * found["sum"][0]

        return loss_of

    def test_names_containers_and_plain_values(self):
        for args, kwargs in (((), {}), ((..., 2.0), {}), ((), {"parts": ..., "scale": 0.5}), ((...,), {"names": ("a", "b")})):
            self.both(self.Net(), self.loss(*args, **kwargs))
            self.assert_in_force()

    def test_other_values_are_not_served(self):
        model = self.Net()
        scales = iter([1.0, 1.0, 1.0, 1.0, 3.0, 1.0] * 10)
        self.both(model, lambda model, x, y: self.loss(scale=next(scales))(model, x, y))
        self.assert_in_force()

    def test_inputs_with_gradients(self):
        first = torch.nn.Linear(4, 4)
        self.both(self.Net(), lambda model, x, y: (model(x=first(x))["out"] - y).pow(2).mean() + 0 * first.weight.sum())
        self.assert_in_force()

    def test_other_things_are_refused(self):
        self.both(self.Net(), self.loss(names=[object()].__len__))
        self.assert_not("refused", "something else than tensors on the GPU and plain values")


class LeavingTest(CapturedTest):
    """What passes leave behind, and what they read."""

    def of(self, forward, **attributes):
        """A model with these attributes."""
        model = Net()
        for name, value in attributes.items():
            if name == "buffer":
                model.register_buffer("buffer", value)
            else:
                setattr(model, name, value)
        model.__class__ = type("Net", (Net,), {"forward": forward})
        return model

    def test_tensors_are_given_anew(self):
        def forward(self, x):
            hidden = self.inner[0](x)
            self.shown, self.cache.last = hidden, {"losses": [hidden.pow(2).mean(), hidden.mean()], "count": 2}
            return self.inner(x)

        seen = []

        def loss_of(model, x, y):
            loss = squares(model, x, y)
            seen.append((model.shown, model.cache.last))
            return loss + sum(model.cache.last["losses"]) * model.cache.last["count"]

        self.both(self.of(forward, cache=Cache()), loss_of)
        self.assert_in_force()
        flat = [[shown.tolist(), [loss.item() for loss in last["losses"]]] for shown, last in seen]
        self.assertEqual(flat[:STEPS], flat[STEPS:])

    def test_what_goes_on_from_the_last_pass_is_refused_and_goes_on_as_it_was(self):
        def kept(self, x):
            out = 0.5 * self.kept + self.inner(x)
            self.kept = out.detach().mean()
            return out

        def listed(self, x):
            out = self.inner(x) + self.kept[-1]
            self.kept = [0.1 * out.detach().mean()]
            return out

        def in_an_object(self, x):
            out = self.inner(x) + self.kept.last
            self.kept.last = 0.1 * out.detach().mean()
            return out

        for forward, value in ((kept, torch.zeros(())), (listed, [0.0]), (in_an_object, Cache())):
            self.both(self.of(forward, kept=value), squares)
            self.assert_not("refused", "it goes on from what its last pass has left in ")

    def test_what_python_remembers_is_refused_and_stays_as_it_was(self):
        def counts(self, x):
            self.kept.last += 1
            return self.inner(x) * self.kept.last

        def appends(self, x):
            self.kept.append(x.shape[0])
            return self.inner(x) * len(self.kept)

        def nested(self, x):
            self.kept["a"].append(x.mean())
            return self.inner(x) * len(self.kept["a"])

        def alternates(self, x):
            self.kept = {"out": self.inner(x), "is_odd": not self.kept["is_odd"]}
            return self.kept["out"] * (2 if self.kept["is_odd"] else 1)

        for forward, value in ((counts, Cache()), (appends, collections.deque()), (nested, {"a": []})):
            self.both(self.of(forward, kept=value), squares)
            self.assert_not("refused", "in Python")
        self.both(self.of(alternates, kept={"is_odd": False}), squares)
        self.assert_not("refused", "")

    def test_tensors_that_are_changed_in_place(self):
        def forward(self, x):
            self.kept.mul_(0.9).add_(0.1 * x.mean())
            self.all["a"][0].add_(1.0)
            return self.inner(x) + self.kept + 0.1 * self.all["a"][0]

        other = self.both(self.of(forward, kept=torch.zeros(1), all={"a": [torch.zeros(1)]}), squares)
        self.assert_in_force()
        self.assertEqual(other.all["a"][0].item(), STEPS)

    def test_buffers_that_are_replaced_are_refused(self):
        def forward(self, x):
            out = self.inner(x)
            self.buffer = 0.9 * self.buffer + 0.1 * out.detach().mean()
            return out + self.buffer

        self.both(self.of(forward, buffer=torch.zeros(())), squares)
        self.assert_not("refused", "place of its buffers")

    def test_random_numbers_of_the_cpu_are_refused(self):
        def forward(self, x):
            return torch.nn.functional.dropout(self.inner(x), 0.1)

        self.both(self.of(forward), squares)
        self.assert_not("refused", "draws random numbers")

    def test_what_the_program_changes_ends_it(self):
        def forward(self, x):
            return self.inner(x) * self.scale

        def layer(model, _):
            model.inner[3] = torch.nn.Linear(8, 2)

        def weight(model, _):
            model.inner[3].weight = torch.nn.Parameter(torch.ones(2, 8))

        def scale(model, step):
            model.scale = step + 1.0

        for change in (layer, weight, scale):
            self.both(self.of(forward, scale=1.0), squares, lambda model, step: change(model, step) if step == 6 else None)
            self.assert_not("undone", "the program has changed the model since")

    def test_what_the_program_collects_does_not(self):
        def forward(self, x):
            return self.inner(x)

        def collects(model, step):
            model.losses.append(step)
            model.training_since = model.training

        self.both(self.of(forward, losses=[], training_since=True), squares, collects)
        self.assert_in_force()


class PassesTest(CapturedTest):
    """Several passes, and gradients that come late."""

    class Net(Net):
        def forward(self, x):
            return self.inner(x)

    def test_two_passes_of_a_step(self):
        self.both(self.Net(), lambda model, x, y: squares(model, x, y) + squares(model, 2 * x, y))
        self.assert_in_force()

    def test_evaluation_between(self):
        def evaluate(model, _):
            model.eval()
            with torch.no_grad():
                self.assertFalse(model(torch.ones(6, 4)).requires_grad)
            model.train()

        self.both(self.Net(), squares, evaluate)
        self.assert_in_force()

    def test_other_shapes_between(self):
        sizes = iter([6, 6, 6, 6, 4, 6] * 10)

        def loss_of(model, x, y):
            size = next(sizes)
            return squares(model, x[:size], y[:size])

        self.both(self.Net(), loss_of)
        self.assert_in_force()


if __name__ == "__main__":
    unittest.main()
