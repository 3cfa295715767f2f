"""Under torch.compile the agent changes no graph: as many graphs, recompilations and graph breaks with it as without."""

import json
import unittest

import torch
import torch._dynamo
from support import MODEL, Case

from fullwatt import recorder

COUNTERS = """
import json
from torch._dynamo.utils import counters
keys = ("frames", "stats", "graph_break", "recompiles", "unimplemented")
found = {key: {str(k).split("\\n")[0]: v for k, v in counters[key].items()} for key in keys}
print(json.dumps({"counters": found, "loss": loss.item().hex()}))
"""
ACTIONS = {3: recorder.MEASURE, 5: recorder.COUNT, 11: recorder.OPEN_CAUSES, 13: recorder.CLOSE, 14: recorder.MEASURE}

COMPILED_MODEL = MODEL + """
compiled = torch.compile(model, backend="aot_eager")
loader = torch.utils.data.DataLoader(data, batch_size=8)
for epoch in range(2):
    compiled.train()
    for x, y in loader:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = ((compiled(x) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    compiled.eval()
    with torch.no_grad():
        for x, y in loader:
            compiled(x)
""" + COUNTERS

IN_PLACE = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = model
    def forward(self, x):
        return self.layers(x)
compiled = Net()
compiled.compile(backend="aot_eager")
"""
COMPILED_IN_PLACE = COMPILED_MODEL.replace('compiled = torch.compile(model, backend="aot_eager")', IN_PLACE)

COMPILED_OPTIMIZER = MODEL + """
@torch.compile(backend="aot_eager")
def update():
    optimizer.step()
for i in range(16):
    optimizer.zero_grad()
    loss = loss_of(*data[:])
    loss.backward()
    update()
""" + COUNTERS

COMPILED_STEP = MODEL + """
@torch.compile(backend="aot_eager")
def train(x, y):
    model.train()
    loss = loss_of(x, y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss
for i in range(30):
    loss = train(*data[:])
model.eval()
model.train()
loss = train(*data[:])
""" + COUNTERS


EARLY = not hasattr(torch._C._dynamo.eval_frame, "set_code_exec_strategy")  # such compilers leave the hooks of optimisers outside of what they compile


class CompileTest(Case):
    maxDiff = None

    def same_with_and_without(self, source):
        watched = self.run_forked(source, fake={"actions": ACTIONS})
        alone = self.run_forked(source, agent=False)
        self.assertEqual((watched.code, alone.code), (0, 0), watched.err + alone.err)
        self.assertNotIn("fullwatt:", watched.err)
        seen = json.loads(alone.out)
        self.assertGreater(seen["counters"]["stats"]["unique_graphs"], 0)
        self.assertEqual(self.comparable(json.loads(watched.out)), self.comparable(seen))
        return watched

    def comparable(self, seen):
        """Early compilers strip optimisers of their hooks; the hook we put there instead is one more frame they look at."""
        if EARLY:
            seen["counters"]["frames"] = seen["counters"]["unimplemented"] = None
        return seen

    def test_a_compiled_model_compiles_as_often_as_alone(self):
        outcome = self.same_with_and_without(COMPILED_MODEL)
        self.assertEqual(len(outcome.calls("step")), 16)
        self.assertEqual(outcome.fact("compile")["site"]["line"], self.line_of(COMPILED_MODEL, "torch.compile(model"))
        self.assertEqual(outcome.fact("flops")["reason"], "the step is compiled")
        self.assertEqual((outcome.fact("model")["class"], outcome.fact("model")["compiled"]), ("Sequential", True))
        self.assertEqual(sum(call["samples"] for call in outcome.calls("samples")), 128)
        self.assertGreater(outcome.facts("compile_stats")[-1]["seconds"], 0)
        self.assertIn(recorder.COMPILE, {call["phase"] for call in outcome.calls("phase")})

    def test_a_model_compiled_in_place_compiles_as_often_as_alone(self):
        outcome = self.same_with_and_without(COMPILED_IN_PLACE)
        self.assertEqual(len(outcome.calls("step")), 16)
        self.assertEqual(sum(call["samples"] for call in outcome.calls("samples")), 128)

    def test_a_compiled_optimiser_compiles_as_often_as_alone(self):
        outcome = self.same_with_and_without(COMPILED_OPTIMIZER)
        self.assertEqual(len(outcome.facts("optimizer")), 1 if EARLY else 0)

    def test_a_compiled_step_compiles_as_often_as_alone_and_its_backward_is_the_step(self):
        outcome = self.same_with_and_without(COMPILED_STEP)
        self.assertEqual(len(outcome.calls("step")), 31 if EARLY else 31 - 19)


if __name__ == "__main__":
    unittest.main()
