"""Fixes that the program undoes later: a look at them, about once a second, tells of it."""

import unittest

import torch

from fixes_test import HAS_CALL_PLACE, FixCase
from support import MODEL

from fullwatt import recorder
from fullwatt.fixes import optimizers

LOOP = """
for step in range(30):
    if step == 20:
        CHANGE
    optimizer.zero_grad()
    loss = loss_of(torch.randn(4, 8), torch.ones(4, 1))
    loss.backward()
    optimizer.step()
    print("%.17g" % loss.item())
"""
LOOKS = {"actions": {18: recorder.MEASURE, 25: recorder.MEASURE}}
ADAM = MODEL.replace("torch.optim.SGD(model.parameters(), lr=0.01)", "torch.optim.AdamW(model.parameters(), lr=0.01OPTIONS)")


class LooksCase(FixCase):
    def looked_at(self, fix, source):
        """The states of a fix, one after the other, and the outcome."""
        outcome = self.train([fix], source, fake=LOOKS)
        told = sorted((fact for fact in outcome.facts("fix") if fact["id"] == fix), key=lambda fact: fact["at_ns"])
        return [fact["state"] for fact in told], told[-1]["text"], outcome

    def assert_undone(self, fix, source, why):
        states, text, outcome = self.looked_at(fix, source)
        self.assertEqual(states, ["waiting", "in-force", "undone"])
        self.assertIn(why, text)
        return outcome


class CollectorTest(LooksCase):
    def test_a_program_that_sets_the_opposite_is_noticed(self):
        for change, why in (("gc.unfreeze()", "gc.unfreeze()"), ("gc.disable()", "switched the collector off"), ("gc.set_threshold(700, 10, 10)", "other thresholds")):
            self.assert_undone("gc-freeze", "import gc\n" + MODEL + LOOP.replace("CHANGE", change), why)

    def test_what_is_left_alone_stays_in_force(self):
        states, _, _ = self.looked_at("gc-freeze", "import gc\n" + MODEL + LOOP.replace("CHANGE", "gc.collect()"))
        self.assertEqual(states, ["waiting", "in-force"])


@unittest.skipUnless(HAS_CALL_PLACE, "this torch has no place for it")
class ModelsTest(LooksCase):
    SOURCE = MODEL.replace("torch.nn.Linear(8, 16)", "torch.nn.Unflatten(1, (2, 2, 2)), torch.nn.Conv2d(2, 4, 2), torch.nn.Flatten()").replace("Linear(16, 1)", "Linear(4, 1)")

    def test_weights_that_are_put_back_are_noticed_and_inputs_come_as_they_are_again(self):
        outcome = self.assert_undone("channels-last", self.SOURCE + LOOP.replace("CHANGE", "model.to(memory_format=torch.contiguous_format)"), "rearranged the weights")
        plain = self.train([], self.SOURCE + LOOP.replace("CHANGE", "pass"))
        for one, other in zip(outcome.out.split(), plain.out.split()):
            self.assertAlmostEqual(float(one), float(other), places=5)
        state = "model.load_state_dict({name: value.clone(memory_format=torch.contiguous_format) for name, value in model.state_dict().items()}, assign=True)"
        self.assert_undone("channels-last", self.SOURCE + LOOP.replace("CHANGE", state), "rearranged the weights")

    def test_what_is_left_alone_stays_in_force(self):
        states, _, _ = self.looked_at("channels-last", self.SOURCE + LOOP.replace("CHANGE", "model.load_state_dict(model.state_dict())"))
        self.assertEqual(states, ["waiting", "in-force"])

    def test_a_program_that_compiles_its_model_later_is_noticed(self):
        self.assert_undone("bf16", MODEL + LOOP.replace("CHANGE", "model.compile(backend='eager')"), "has compiled Sequential")


@unittest.skipUnless("cpu" in optimizers.supported(torch), "this torch has none for CPUs")
class OptimizersTest(LooksCase):
    SAVED = ADAM + "import copy\nsaved = copy.deepcopy(optimizer.state_dict())\n"
    TELL = "\nprint([group['fused'] for group in optimizer.param_groups], [group['fused'] for group in optimizer.state_dict()['param_groups']])\n"

    def assert_like_a_fused_one(self, change):
        """To the bit what an optimiser does that is fused all the time."""
        fused = self.SAVED.replace("OPTIONS", ", fused=True") + LOOP.replace("CHANGE", change + "; [group.update(fused=True, foreach=False) for group in optimizer.param_groups]")
        states, _, outcome = self.looked_at("fused-optimizer", self.SAVED.replace("OPTIONS", "") + LOOP.replace("CHANGE", change) + self.TELL)
        self.assertEqual(states, ["waiting", "in-force"])
        self.assertEqual(outcome.out.split("\n")[:30], self.train([], fused).out.split("\n")[:30])
        return outcome.out.strip().split("\n")[-1]

    def test_a_state_that_is_loaded_is_trained_on_by_the_fused_form(self):
        self.assertEqual(self.assert_like_a_fused_one("optimizer.load_state_dict(saved)"), "[True] [None]")
        self.assertEqual(self.assert_like_a_fused_one("optimizer.load_state_dict(optimizer.state_dict())"), "[True] [None]")

    def test_parameters_that_are_added_are_trained_by_the_fused_form(self):
        frozen = self.SAVED.replace("torch.optim.AdamW(model.parameters()", "torch.optim.AdamW(model[2].parameters()")
        states, _, outcome = self.looked_at("fused-optimizer", frozen.replace("OPTIONS", "") + LOOP.replace("CHANGE", "optimizer.add_param_group({'params': list(model[0].parameters())})") + self.TELL)
        self.assertEqual(states, ["waiting", "in-force"])
        self.assertIn("[True, True] [None, None]", outcome.out)

    def test_where_it_cannot_be_fused_any_more_it_is_undone_and_trains_on(self):
        mixed = "optimizer.add_param_group({'params': [torch.nn.Parameter(torch.ones(2, dtype=torch.complex64))]})"
        outcome = self.assert_undone("fused-optimizer", self.SAVED.replace("OPTIONS", "") + LOOP.replace("CHANGE", mixed) + self.TELL + "print(hasattr(optimizer, '_step_supports_amp_scaling'))",
                                     "added parameters, and some of its parameters are no floating-point numbers")  # fmt: skip
        self.assertEqual(outcome.out.strip().split("\n")[-2:], ["[None, None] [None, None]", "False"])
        loaded = "saved['param_groups'][0]['differentiable'] = True; optimizer.load_state_dict(saved); optimizer.step = lambda: None"
        self.assert_undone("fused-optimizer", self.SAVED.replace("OPTIONS", "") + LOOP.replace("CHANGE", loaded), "loaded a state, and AdamW is differentiable or capturable")

    def test_a_program_that_sets_it_to_something_else_is_noticed_and_saves_that(self):
        source = self.SAVED.replace("OPTIONS", "") + LOOP.replace("CHANGE", "optimizer.param_groups[0].update(fused=False)") + self.TELL
        outcome = self.assert_undone("fused-optimizer", source, "set fused to something else")
        self.assertEqual(outcome.out.strip().split("\n")[-1], "[False] [False]")


if __name__ == "__main__":
    unittest.main()
