"""What a fixed model returns: dtype and layout are those of the program's own model, in whatever the tensors lie."""

import unittest

from fixes_test import HAS_CALL_PLACE, FixCase


@unittest.skipUnless(HAS_CALL_PLACE, "this torch has no place for it")
class PrecisionTest(FixCase):
    SOURCE = """
import dataclasses, torch
torch.manual_seed(0)
@dataclasses.dataclass(frozen=True)
class Output:
    logits: torch.Tensor
    calls: int
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5))
        self.calls = 0
    def forward(self, x):
        self.calls += 1
        y = self.layers(x)
        self.inside = y.dtype
        return RETURNED
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(6):
    out = model(torch.randn(4, 8))
    loss = LOGITS.sum()
    loss.backward()
    optimizer.step()
    print(LOGITS.dtype, LOGITS.detach().numpy().dtype, "%.9g" % loss.item(), model.calls)
print(model.layers[1].num_batches_tracked.item(), model.inside, torch.rand(1).item())
"""

    def test_a_dataclass_comes_in_float32(self):
        outcome = self.train(["bf16"], self.SOURCE.replace("RETURNED", "Output(y, self.calls)").replace("LOGITS", "out.logits"))
        self.assert_in_force(outcome, "bf16")
        self.assertEqual(outcome.out.count("torch.float32 float32"), 6)
        self.assertIn("torch.bfloat16", outcome.out)

    def test_a_model_whose_result_hides_its_tensors_goes_without_from_its_first_call_on(self):
        source = self.SOURCE.replace("RETURNED", "lambda: y").replace("LOGITS", "out()")
        plain, outcome = self.train([], source), self.train(["bf16"], source)
        self.assert_refused(outcome, "bf16", "it returns a function, whose tensors cannot be reached")
        self.assertEqual(outcome.out, plain.out)

    def test_another_model_keeps_it(self):
        source = self.SOURCE.replace("RETURNED", "lambda: y").replace("LOGITS", "out()")
        source = source.replace("optimizer =", "other = torch.nn.Linear(8, 8)\noptimizer =").replace("out = model(torch.randn(4, 8))", "out = model(other(torch.randn(4, 8)))")
        self.assert_in_force(self.train(["bf16"], source), "bf16")


@unittest.skipUnless(HAS_CALL_PLACE, "this torch has no place for it")
class LayoutTest(FixCase):
    """Channels last inside, and outside what the program had."""

    SOURCE = """
import torch
torch.manual_seed(0)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.Conv2d(8, 4, 1)
    def forward(self, x):
        y = self.head(torch.relu(self.conv(x)))
        self.inside = y.is_contiguous(memory_format=torch.channels_last)
        return RETURNED if self.training or not EVALUATED else EVALUATED
model = Net()
optimizer = torch.optim.Adam(model.parameters())
def each(out):
    return [part for value in (out.values() if isinstance(out, dict) else out) for part in each(value)] if not isinstance(out, torch.Tensor) else [out]
for step in range(8):
    x = torch.randn(2, 3, 6, 6)
    out = model(INPUT)
    if TWICE:
        out = [out, model(2 * x)]
    optimizer.zero_grad()
    sum((part.float() ** 2).mean() for part in each(out)).backward()
    optimizer.step()
    print([(tuple(part.shape), part.stride()) for part in each(out)])
model.eval()
with torch.no_grad():
    print([(tuple(part.shape), part.stride()) for part in each(model(INPUT))])
"""

    def strides(self, fixes, returned, evaluated="None", given="x", twice=False):
        source = self.SOURCE.replace("RETURNED", returned).replace("EVALUATED", evaluated).replace("INPUT", given).replace("TWICE", str(twice))
        return self.train(fixes, source + "print(model.inside, 'inside')\n")

    def assert_same(self, *arguments, **options):
        plain, outcome = self.strides([], *arguments, **options), self.strides(["channels-last"], *arguments, **options)
        self.assert_in_force(outcome, "channels-last")
        self.assertEqual(outcome.out.replace("True inside", "False inside"), plain.out.replace("True inside", "False inside"))
        self.assertIn("True inside", outcome.out)

    def test_whatever_the_model_makes_of_its_images(self):
        for returned in ("y", "{'y': [y, y.mean()]}", "y.flatten(2)", "y.flatten(2).transpose(1, 2)", "y.transpose(1, 2)",
                         "torch.relu(y.permute(0, 2, 3, 1).contiguous()).permute(0, 3, 1, 2) * 1", "y.permute(0, 2, 3, 1) + 0"):  # fmt: skip
            with self.subTest(returned):
                self.assert_same(returned)

    def test_a_slice_comes_without_its_gaps(self):
        self.assertEqual(self.strides(["channels-last"], "y[:, :2]").out.count("(72, 36, 6, 1)"), 7)  # after the step in which the model is found and its own first call, where it is (144, 36, 6, 1)
        self.assertEqual(self.strides(["channels-last"], "y[:, :, 0]").out.count("(24, 6, 1)"), 7)

    def test_a_program_that_gives_channels_last_gets_them(self):
        self.assert_same("y", given="x.to(memory_format=torch.channels_last)")
        self.assert_same("y.sum()", "(y, x)", given="x.to(memory_format=torch.channels_last)")

    def test_what_only_an_evaluation_returns_is_in_the_usual_order(self):
        self.assert_same("y.sum()", "(y, y.sum())")

    def test_a_second_call_before_the_gradients(self):
        self.assert_same("y", twice=True)

    def test_images_in_a_container_of_the_programs_stay_in_it(self):
        source = self.SOURCE.replace("self.conv(x)", "self.conv(x['x'])").replace("RETURNED", "x.update(y=y) or y").replace("EVALUATED", "None").replace("TWICE", "False")
        source = source.replace("out = model(INPUT)", "batch = {'x': x}\n    out = model(batch)\n    batch['y']").replace("INPUT", "{'x': x}")
        plain, outcome = self.train([], source), self.train(["channels-last"], source)
        self.assert_in_force(outcome, "channels-last")
        self.assertEqual(outcome.out, plain.out)

    def test_a_model_with_weights_of_five_dimensions(self):
        source = self.SOURCE.replace("RETURNED", "y * self.scale.sum()").replace("EVALUATED", "None").replace("INPUT", "x").replace("TWICE", "False")
        source = source.replace("def forward", "    self.scale = torch.nn.Parameter(torch.ones(1, 2, 1, 2, 1))\n    def forward")
        self.assert_in_force(self.train(["channels-last"], source), "channels-last")


if __name__ == "__main__":
    unittest.main()
