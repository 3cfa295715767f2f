"""The fix that cuts batches into parts whose gradients make one step."""

import json
import unittest

import torch

from fixes_test import FixCase

TRAINING = """
import json, torch
torch.manual_seed(0)
data = torch.utils.data.TensorDataset(torch.randn(42, 4), torch.randn(42, 1))
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).double()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True, drop_last=%(drop_last)s, num_workers=%(workers)d)
held_out = torch.utils.data.DataLoader(data, batch_size=8)
lengths = []
def backward(x, y):
    loss = ((model(x.double()) - y.double()) ** 2).mean()
    loss.backward()
    return loss
for epoch in range(3):
    for x, y in loader:
        lengths.append(len(x))
        %(body)s
    schedule.step()
    with torch.no_grad():
        assert [len(x) for x, _ in held_out] == [8] * 5 + [2]
steps = int(next(iter(optimizer.state.values()))["step"]) if optimizer.state else 0
print(json.dumps({"steps": steps, "lengths": lengths[:9], "all": len(lengths), "len": len(loader), "weights": [w for p in model.parameters() for w in p.flatten().tolist()]}))
"""
BODIES = {
    "cleared first": "optimizer.zero_grad(); backward(x, y); optimizer.step()",
    "cleared last": "backward(x, y); optimizer.step(); optimizer.zero_grad()",
    "cleared by the model": "model.zero_grad(); backward(x, y); optimizer.step()",
    "clipped": "optimizer.zero_grad(); backward(x, y); torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01); optimizer.step()",
    "by a closure": "optimizer.step(lambda: (optimizer.zero_grad(), backward(x, y))[1])",
}
IN_PARTS = {"id": "accumulation", "parts": 3}


def source(body, workers=0, drop_last=False):
    return TRAINING % {"body": body, "workers": workers, "drop_last": drop_last}


class AccumulationTest(FixCase):
    def trained(self, program, fixes=(IN_PARTS,)):
        outcome = self.train(list(fixes), program)
        return outcome, json.loads(outcome.out)

    def assert_same_training(self, program, fixes=(IN_PARTS,), steps=18, whole=None):
        whole = whole or self.trained(program, fixes=())[1]
        outcome, parts = self.trained(program, fixes)
        self.assert_in_force(outcome, "accumulation")
        self.assertEqual((whole["steps"], parts["steps"]), (steps, steps))
        self.assertEqual(parts["all"], whole["all"] + 2 * steps - (3 if steps == 18 else 0), "the two samples at an epoch's end are two parts")
        for one, other in zip(whole["weights"], parts["weights"]):
            self.assertAlmostEqual(one, other, places=9)
        return outcome, parts

    def test_it_is_the_same_training_however_the_loop_is_written(self):
        plain = self.trained(source(BODIES["cleared first"]), fixes=())[1]
        for name, body in BODIES.items():
            with self.subTest(name):
                outcome, parts = self.assert_same_training(source(body), whole=plain if name != "clipped" else None)
                self.assertEqual(parts["lengths"], [3, 3, 2] * 3)
                self.assertEqual(parts["len"], 17)
                self.assertEqual(self.fix(outcome, "accumulation")["text"], "each batch in 3 parts")

    def test_workers_the_cache_and_dropped_batches_change_nothing(self):
        self.assert_same_training(source(BODIES["cleared first"], workers=1))
        self.assert_same_training(source(BODIES["cleared first"], drop_last=True), steps=15)
        outcome, _ = self.assert_same_training(source(BODIES["cleared first"]), fixes=({"id": "sample-cache", "gigabytes": 1}, IN_PARTS))
        self.assert_in_force(outcome, "sample-cache")

    @unittest.skipUnless(hasattr(torch.amp, "GradScaler"), "this torch scales on GPUs only")
    def test_a_scaler_of_the_programs_own_waits(self):
        body = "optimizer.zero_grad(); scaler.scale(((model(x.double()) - y.double()) ** 2).mean()).backward(); scaler.unscale_(optimizer); scaler.step(optimizer); scaler.update()"
        self.assert_same_training(source(body).replace("lengths = []", "lengths = []\nscaler = torch.amp.GradScaler('cpu', growth_interval=2)"))

    def test_a_loop_that_is_left_early_leaves_no_gradients(self):
        body = BODIES["cleared last"] + "\n        if len(lengths) % 4 == 0: break"
        outcome, parts = self.trained(source(body))
        self.assertEqual(parts["steps"], 3, "one for each epoch of four parts")
        self.assert_in_force(outcome, "accumulation")

    def test_programs_that_step_otherwise_are_left_alone(self):
        again = "\n        if len(lengths) % 2 == 0: optimizer.step(); optimizer.zero_grad()"
        program = source("backward(x, y)" + again)
        outcome, parts = self.trained(program)
        self.assertEqual(self.fix(outcome, "accumulation")["text"], "the program gathers gradients over several batches itself")
        self.assertIn(8, parts["lengths"], "whole batches again")
        outcome, _ = self.trained(source(BODIES["cleared first"] + "; " + BODIES["cleared first"]))
        self.assertEqual(self.fix(outcome, "accumulation")["text"], "the program makes several steps with one batch")
        outcome, _ = self.trained(source("backward(x, y); optimizer.step()\n        for p in model.parameters(): p.grad = None"))
        self.assertEqual(self.fix(outcome, "accumulation")["text"], "the program clears its gradients in a way of its own")

    def test_several_optimisers_are_refused_and_nothing_is_cut(self):
        program = source(BODIES["cleared first"]).replace("lengths = []", "lengths = []\nother = torch.optim.SGD(model.parameters(), lr=0.1)")
        outcome, parts = self.trained(program)
        self.assert_refused(outcome, "accumulation", "several optimisers")
        self.assertEqual(parts["lengths"][0], 8)


if __name__ == "__main__":
    unittest.main()
