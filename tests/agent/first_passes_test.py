"""What the first backward passes tell of a program, before its models are compiled or captured."""

import unittest

from fixes_test import HAS_CALL_PLACE, TRAIN, FixCase
from support import MODEL

COMPILE = {"id": "compile", "backend": "aot_eager"}
OF_GRADIENTS = TRAIN.replace("loss = loss_of(x, y)\n", """x.requires_grad_(True)
        out = model(x)
        slope, = torch.autograd.grad(out.sum(), x, create_graph=True)
        loss = ((out - y) ** 2).mean() + slope.pow(2).mean()
""")
KEPT = TRAIN.replace("loss.backward()", "loss.backward(retain_graph=True)")
TWICE = TRAIN.replace("loss.backward()", "loss.backward(retain_graph=True); (0.5 * loss).backward()")


@unittest.skipUnless(HAS_CALL_PLACE, "this PyTorch has no place for it")
class FirstPassesTest(FixCase):
    def both(self, source, fixes=(COMPILE,)):
        """The program with a plan, whose losses stay."""
        plain, fixed = self.train([], MODEL + source), self.train(fixes, MODEL + source)
        self.assertEqual(fixed.out, plain.out)
        return fixed

    def test_gradients_of_gradients_are_not_compiled(self):
        self.assert_refused(self.both(OF_GRADIENTS), "compile", "differentiates gradients")

    def test_passes_that_are_kept_can_be_compiled(self):
        for source in (KEPT, TWICE):
            self.assert_in_force(self.both(source), "compile")

    def test_neither_is_captured(self):
        """Told by the first steps, so that a trial need not find out."""
        for source, why in ((OF_GRADIENTS, "differentiates gradients"), (TWICE, "more than once")):
            self.assert_refused(self.both(source, ["cuda-graphs"]), "cuda-graphs", why)

    def test_tensors_in_objects_of_the_programs_own_are_seen(self):
        wrapped = """
class Out:
    def __init__(self, value):
        self.value = value
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = model
    def forward(self, x):
        return Out(self.inner(x))
model = Net()
"""
        source = wrapped + OF_GRADIENTS.replace("out = model(x)", "out = model(x).value")
        self.assert_refused(self.both(source), "compile", "differentiates gradients")

    def test_a_model_that_is_called_several_times_in_a_pass_is_no_such_case(self):
        source = TRAIN.replace("loss = loss_of(x, y)\n", "loss = ((model(x) - y) ** 2).mean() + model(x * 0.5).pow(2).mean()\n")
        self.assert_in_force(self.both(source), "compile")


if __name__ == "__main__":
    unittest.main()
