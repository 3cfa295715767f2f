"""Gradients let go in the place of zeros: the training stays what it was, to the bit."""

import unittest

from fixes_test import FixCase

NAME = "gradients-to-none"
# The branch is used in every second step only: its gradients are zeros in the others, and its momentum goes on.
TRAINING = """
import torch
torch.manual_seed(0)
trunk, branch = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
parameters = [*trunk.parameters(), *branch.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)
kept = []
for step in range(20):
    x = torch.randn(8, 4)
    optimizer.zero_grad(set_to_none=False)
    y = trunk(x)
    loss = ((branch(y) if step % 2 else y) ** 2).mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(parameters, 0.5)
    optimizer.step()
    print("%.9g" % loss.item(), [None if p.grad is None else "%.9g" % p.grad.sum() for p in parameters])
"""


class GradientsTest(FixCase):
    def both(self, source):
        plain, fixed = self.train([], source), self.train([NAME], source)
        self.assertEqual(fixed.out, plain.out)
        self.assertGreater(len(plain.out.split("\n")), 10)
        return fixed

    def test_a_training_stays_what_it_was(self):
        fixed = self.both(TRAINING)
        self.assert_in_force(fixed, NAME)
        self.assertEqual(self.fix(fixed, NAME)["text"], "SGD")

    def test_they_are_let_go(self):
        source = TRAINING.replace("    y = trunk(x)", "    kept.append(all(p.grad is None for p in parameters))\n    y = trunk(x)") + "print(kept)"
        self.assertEqual(self.train([], source).out.split("\n")[-2], str([True] + [False] * 19))
        self.assertEqual(self.train([NAME], source).out.split("\n")[-2], str([True] + [False] * 8 + [True] * 11))

    def test_a_step_without_a_backward_pass_has_its_zeros(self):
        self.assert_in_force(self.both(TRAINING.replace("    loss.backward()", "    if step % 3: loss.backward()")), NAME)

    def test_a_module_may_be_asked(self):
        source = TRAINING.replace("optimizer.zero_grad(", "model.zero_grad(").replace("kept = []", "model = torch.nn.Sequential(trunk, branch)")
        self.assertEqual(self.fix(self.both(source), NAME)["text"], "Sequential")

    def test_gradients_of_several_passes_add_up(self):
        self.assert_in_force(self.both(TRAINING.replace("loss.backward()", "loss.backward(retain_graph=True); loss.backward()")), NAME)

    def test_a_program_that_keeps_them_is_refused(self):
        for keeping in ("if step == 2: kept = [p.grad for p in parameters]", "if step == 2: kept = parameters[0].grad.view(-1)",
                        "if step == 0: flat = torch.zeros(16); trunk.weight.grad = flat.view(4, 4)"):  # fmt: skip
            fixed = self.both(TRAINING.replace("    loss.backward()", "    %s\n    loss.backward()" % keeping))
            self.assertIn(self.fix(fixed, NAME)["state"], ("refused", "undone"), keeping)
            self.assertIn("keeps gradients", self.fix(fixed, NAME)["text"])

    def test_without_zeros_it_is_never_reached(self):
        fixed = self.both(TRAINING.replace("set_to_none=False", ""))
        self.assertEqual(self.fix(fixed, NAME)["state"], "waiting")


if __name__ == "__main__":
    unittest.main()
