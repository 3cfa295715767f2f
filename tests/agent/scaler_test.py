"""float16 with a gradient scaler that the program does not see."""

import unittest

import torch

from fixes_test import HAS_CALL_PLACE, FixCase

NET = """
import torch
torch.manual_seed(0)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 32), torch.nn.Linear(32, 1)
    def forward(self, x):
        y = self.first(x)
        self.inside = y.dtype
        return self.second(torch.relu(y))
model, factor = Net(), torch.nn.Parameter(torch.ones(()))
parameters = [*model.parameters(), factor]
def loss_of(x):
    return ((model(x) * factor - x.sum(1, keepdim=True)) ** 2).mean()
"""

# Losses so small that their gradients are zero in float16; a penalty of the weights themselves; accumulation; clipping.
SMALL = NET + """
optimizer = torch.optim.SGD(parameters, lr=1e3)
for step in range(16):
    loss = 1e-7 * loss_of(torch.randn(64, 8)) + 1e-9 * sum((p ** 2).sum() for p in model.parameters())
    if step % 2 == 0:
        optimizer.zero_grad(set_to_none=step % 4 == 0)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(parameters, 1e-6)
    print("%.9g %.9g %.9g" % (norm, factor.grad.item(), model.first.weight.grad.abs().sum().item()))
    if step % 2 == 1:
        optimizer.step()
print(model.inside, loss.dtype)
"""

OVERFLOW = NET + """
optimizers = [make(model.parameters()), make([factor])]
for step in range(14):
    x = torch.randn(64, 8)
    if step == 9:
        x[0, 0] = 1e6  # beyond float16
    before = [p.detach().clone() for p in parameters]
    (1e-3 * loss_of(x)).backward()
    for optimizer in optimizers:
        optimizer.step()
    print(sum(not torch.equal(p, q) for p, q in zip(parameters, before)), all(bool(p.isfinite().all()) for p in parameters))
    for optimizer in optimizers:
        optimizer.zero_grad()
state = optimizers[0].state[model.first.weight]
print(int(state["step"]) if "step" in state else -1, [name for name in vars(optimizers[0]) if name in ("found_inf", "grad_scale")])
"""


def can_scale_on_the_cpu():
    try:
        torch._amp_foreach_non_finite_check_and_unscale_([torch.ones(1)], torch.zeros(()), torch.ones(()))
        with torch.autocast("cpu", torch.float16):
            return torch.nn.functional.linear(torch.ones(1, 1), torch.ones(1, 1)).dtype is torch.float16
    except (NotImplementedError, RuntimeError):
        return False


@unittest.skipUnless(HAS_CALL_PLACE and can_scale_on_the_cpu(), "this torch has no float16 on the CPU")
class ScalerTest(FixCase):
    def test_the_program_finds_gradients_as_they_would_be(self):
        plain, fixed = (self.train(fixes, SMALL).out.strip().split("\n") for fixes in ([], ["fp16"]))
        self.assertEqual((plain[-1], fixed[-1]), ("torch.float32 torch.float32", "torch.float16 torch.float32"))
        for ours, theirs in zip(fixed[:-1], plain[:-1]):
            for one, other in zip(map(float, ours.split()), map(float, theirs.split())):
                self.assertLess(abs(one - other), 0.02 * abs(other), (ours, theirs))

    def test_a_step_that_overflowed_is_left_out(self):
        for made in ("lambda p: torch.optim.Adam(p, lr=0.01)", "lambda p: torch.optim.Adam(p, lr=0.01, fused=True)", "lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9)"):
            with self.subTest(made=made):
                outcome = self.train(["fp16"], "make = " + made + OVERFLOW)
                self.assert_in_force(outcome, "fp16")
                lines = outcome.out.strip().split("\n")
                self.assertEqual([line for line in lines[:-1] if line != "5 True"], ["0 True"])
                self.assertEqual(lines[9], "0 True")
                self.assertIn(lines[-1], ("13 []", "-1 []"))

    def test_the_scale_halves_after_an_overflow(self):
        outcome = self.train(["fp16"], "make = lambda p: torch.optim.SGD(p, lr=0.0)\nimport gc" + OVERFLOW + """
from fullwatt.fixes.scaler import Scaler
print([one._scale.item() for one in gc.get_objects() if type(one) is Scaler])
""")
        self.assertEqual(outcome.out.strip().split("\n")[-1], "[32768.0]")

    def test_what_would_see_scaled_gradients_ends_it(self):
        loop = """
optimizer = torch.optim.SGD(parameters, lr=1e-3)
for step in range(12):
    loss = loss_of(torch.randn(64, 8))
    optimizer.zero_grad()
    %s
    optimizer.step()
print(model.inside)
"""
        for line, why in (("loss.backward(create_graph=True)", "differentiates"),
                          ("torch.autograd.grad(loss, parameters, retain_graph=True); loss.backward()", "autograd.grad"),
                          ("step == 8 and factor.register_hook(lambda g: None); loss.backward()", "hooks")):
            with self.subTest(line=line):
                outcome = self.train(["fp16"], NET + loop % line)
                self.assertEqual(self.fix(outcome, "fp16")["state"], "undone")
                self.assertIn(why, self.fix(outcome, "fp16")["text"])
                self.assertEqual(outcome.out.strip(), "torch.float32")

    def test_a_pass_that_fails_leaves_gradients_as_they_were(self):
        outcome = self.train(["fp16"], NET + """
optimizer = torch.optim.SGD(parameters, lr=1e-3)
class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, gradient):
        raise MemoryError
for step in range(12):
    x = torch.randn(64, 8)
    optimizer.zero_grad()
    (1e-3 * loss_of(x)).backward()
    before = [p.grad.clone() for p in parameters]
    try:
        Fails.apply(1e-3 * loss_of(x)).backward()
    except MemoryError:
        pass
    print(all(torch.equal(p.grad, g) for p, g in zip(parameters, before)))
    optimizer.step()
""")
        self.assert_in_force(outcome, "fp16")
        self.assertEqual(set(outcome.out.split()), {"True"})

    def test_gradients_of_inputs_end_it(self):
        outcome = self.train(["fp16"], NET + """
optimizer = torch.optim.SGD(parameters, lr=1e-3)
for step in range(12):
    x = torch.randn(64, 8).requires_grad_(step > 8)
    optimizer.zero_grad()
    loss_of(x).backward()
    optimizer.step()
print(model.inside, x.grad.abs().max().item() < 10)
""")
        self.assertEqual(self.fix(outcome, "fp16")["state"], "undone")
        self.assertEqual(outcome.out.strip(), "torch.float32 True")

    @unittest.skipUnless(hasattr(torch.amp, "GradScaler"), "this torch has no scaler for the CPU")
    def test_a_scaler_of_the_programs_own_ends_it(self):
        source = NET + """
optimizer = torch.optim.Adam(parameters, lr=1e-3, fused=True)
scaler = torch.amp.GradScaler("cpu")
for step in range(14):
    optimizer.zero_grad()
    scaler.scale(1e-3 * loss_of(torch.randn(64, 8))).backward()
    scaler.step(optimizer)
    scaler.update()
print(model.inside, "%.4f" % sum(p.double().sum().item() for p in parameters))
"""
        plain, fixed = self.train([], source), self.train(["fp16"], source)
        self.assert_refused(fixed, "fp16", "scales its gradients itself")
        (inside, ours), (_, theirs) = fixed.out.split(), plain.out.split()
        self.assertEqual(inside, "torch.float32")
        self.assertAlmostEqual(float(ours), float(theirs), delta=0.01)

    def test_an_optimiser_with_a_closure_ends_it(self):
        outcome = self.train(["fp16"], NET + """
optimizer = torch.optim.LBFGS(parameters, lr=0.1, max_iter=2)
x = torch.randn(64, 8)
def closure():
    optimizer.zero_grad()
    loss = loss_of(x)
    loss.backward()
    return loss
for step in range(12):
    optimizer.step(closure)
print(model.inside, all(bool(p.isfinite().all()) for p in parameters))
""")
        self.assertEqual(self.fix(outcome, "fp16")["state"], "undone")
        self.assertEqual(outcome.out.strip(), "torch.float32 True")

    def test_models_with_hooks_are_refused(self):
        outcome = self.train(["fp16"], NET + """
model.first.register_full_backward_hook(lambda *a: None)
optimizer = torch.optim.SGD(parameters, lr=1e-3)
for step in range(8):
    loss_of(torch.randn(64, 8)).backward()
    optimizer.step()
print(model.inside)
""")
        self.assert_refused(outcome, "fp16", "hooks")
        self.assertEqual(outcome.out.strip(), "torch.float32")


if __name__ == "__main__":
    unittest.main()
