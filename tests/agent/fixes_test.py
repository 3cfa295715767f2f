"""A plan's fixes: that they are in force, that they are told of, and that the program finds everything as it was."""

import json
import os
import textwrap
import unittest

import torch

from support import MODEL, ROOT, Case

from fullwatt import fixes

TRAIN = """
for epoch in range(2):
    for x, y in torch.utils.data.DataLoader(data, batch_size=4, shuffle=True):
        optimizer.zero_grad()
        loss = loss_of(x, y)
        loss.backward()
        optimizer.step()
        print("%.17g" % loss.item())
"""
HAS_CALL_PLACE = hasattr(torch.nn.Module, "compile")


class CatalogueTest(unittest.TestCase):
    def test_the_agent_knows_the_fixes_of_the_catalogue(self):
        with open(os.path.join(ROOT, "catalog", "fixes.yaml")) as file:
            catalogue = {line.strip(" :\n") for line in file if line.startswith("  ") and not line.startswith("   ") and line.endswith(":\n")}
        self.assertEqual(set(fixes.FIXES), catalogue)

    def test_every_fix_has_its_page(self):
        pages = os.listdir(os.path.join(ROOT, "docs", "fixes"))
        self.assertEqual(set(pages), {name + ".md" for name in fixes.FIXES} | {"README.md"})


class FixCase(Case):
    def train(self, fixes, source, made_for=None, environment=None, **options):
        """Runs a program with a plan; `state(id)` of the outcome is the newest state of a fix."""
        plan = os.path.join(self.scratch, "plan.json")
        with open(plan, "w") as file:
            json.dump({"made_for": made_for or {}, "fixes": [{"id": fix} if isinstance(fix, str) else fix for fix in fixes]}, file)
        outcome = self.run_forked(textwrap.dedent(source), environment={"FULLWATT_PLAN": plan, **(environment or {})}, **options)
        self.assertEqual(outcome.code, 0, outcome.err)
        return outcome

    def fix(self, outcome, name):
        """The newest fact; worker processes that were forked early have the parent's first ones, too."""
        return max((fact for fact in outcome.facts("fix") if fact["id"] == name), key=lambda fact: fact["at_ns"])

    def assert_in_force(self, outcome, name):
        self.assertEqual(self.fix(outcome, name)["state"], "in-force", self.fix(outcome, name))

    def assert_refused(self, outcome, name, why):
        self.assertEqual(self.fix(outcome, name)["state"], "refused")
        self.assertIn(why, self.fix(outcome, name)["text"])


class SwitchesTest(FixCase):
    def test_the_plan_wins_over_the_program_and_names_the_line(self):
        outcome = self.train(["tf32", "cudnn-benchmark", {"id": "threads", "count": 1}], MODEL + """
torch.backends.cudnn.benchmark = False
torch.backends.cudnn.allow_tf32 = False
torch.backends.cuda.matmul.allow_tf32 = False
torch.set_float32_matmul_precision("highest")
torch.set_num_threads(2)
""" + TRAIN + """
print(torch.backends.cudnn.benchmark, torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32, torch.get_num_threads())
""")
        self.assertEqual(outcome.out.split("\n")[-2], "True high True 1")
        for name in ("tf32", "cudnn-benchmark", "threads"):
            self.assert_in_force(outcome, name)
        lines = {(fact["id"], fact["site"]["line"] - MODEL.count("\n")) for fact in outcome.facts("fix_override")}
        self.assertEqual(lines, {("cudnn-benchmark", 2), ("tf32", 3), ("tf32", 4), ("tf32", 5), ("threads", 6)})

    @unittest.skipUnless(len(os.sched_getaffinity(0)) > 1, "one CPU only")
    def test_all_that_runs_is_moved_to_the_cpus_and_stays_there(self):
        cpus = sorted(os.sched_getaffinity(0))
        outcome = self.train([{"id": "affinity", "cpus": str(cpus[0])}], MODEL + """
import os, threading
os.sched_setaffinity(0, {LAST})
def cpus(_):
    return os.sched_getaffinity(0)
print(cpus(None), list(torch.utils.data.DataLoader([0], num_workers=1, collate_fn=cpus)))
print({tuple(os.sched_getaffinity(int(task))) for task in os.listdir("/proc/self/task")})
""".replace("LAST", str(cpus[-1])) + TRAIN)
        self.assertEqual(outcome.out.split("\n")[:2], ["{%d} [{%d}]" % (cpus[0], cpus[0]), "{(%d,)}" % cpus[0]])
        self.assert_in_force(outcome, "affinity")
        self.assertEqual({fact["site"]["line"] - MODEL.count("\n") for fact in outcome.facts("fix_override")}, {3})

    def test_cpus_that_are_not_there_are_refused(self):
        outcome = self.train([{"id": "affinity", "cpus": "0,4000-4001"}], MODEL + TRAIN)
        self.assert_refused(outcome, "affinity", "may not use all of the CPUs 0,4000-4001")

    def test_a_program_that_wants_determinism_keeps_it(self):
        with_it = "import torch\ntorch.use_deterministic_algorithms(True)\n" + MODEL + TRAIN
        outcome = self.train(["cudnn-benchmark"], with_it + "print(torch.backends.cudnn.benchmark)")
        self.assertEqual(outcome.out.split("\n")[-2], "False")
        self.assert_refused(outcome, "cudnn-benchmark", "deterministic")

    def test_a_setting_by_keyword_and_threads_of_workers_are_no_trouble(self):
        outcome = self.train(["tf32", {"id": "threads", "count": 2}], MODEL + """
torch.set_float32_matmul_precision(precision="highest")
def threads(_):
    return torch.get_num_threads()
print(list(torch.utils.data.DataLoader([0], num_workers=1, collate_fn=threads)), torch.get_float32_matmul_precision())
""" + TRAIN)
        self.assertEqual(outcome.out.split("\n")[0], "[1] high")
        self.assert_in_force(outcome, "tf32")

    def test_anomaly_detection_stays_off(self):
        outcome = self.train(["anomaly-off"], MODEL + """
torch.autograd.set_detect_anomaly(True)
with torch.autograd.detect_anomaly():
    print(torch.is_anomaly_enabled())
""" + TRAIN)
        self.assertEqual(outcome.out.split("\n")[0], "False")
        self.assert_in_force(outcome, "anomaly-off")

    def test_what_lives_is_left_out_of_full_collections(self):
        outcome = self.train(["gc-freeze"], MODEL + TRAIN + "import gc\nprint(gc.get_freeze_count() > 0, gc.get_threshold()[2])")
        self.assertEqual(outcome.out.split("\n")[-2], "True 1000")
        self.assert_in_force(outcome, "gc-freeze")

    def test_a_fix_that_is_not_known_is_refused_and_the_training_goes_on(self):
        outcome = self.train(["warp-drive"], MODEL + TRAIN)
        self.assert_refused(outcome, "warp-drive", "does not know it")
        self.assertEqual(len(outcome.out.split()), 32)

    def test_a_plan_is_no_configuration_of_the_program(self):
        outcome = self.train(["tf32"], MODEL + TRAIN)
        self.assert_in_force(outcome, "tf32")
        self.assertEqual(outcome.facts("config_file"), [])

    def test_a_plan_that_cannot_be_read_is_told_and_the_training_goes_on(self):
        outcome = self.run_forked(MODEL + TRAIN, environment={"FULLWATT_PLAN": "/none/plan.json"})
        self.assertEqual(outcome.code, 0)
        self.assertEqual(len(outcome.out.split()), 32)
        self.assertIn("plan.json", outcome.err)


class TargetTest(FixCase):
    FIXES = [{"id": "threads", "count": 1}, "tf32", "bf16", "gc-freeze", "fused-optimizer"]
    SOURCE = "import torch\ntorch.set_num_threads(2)\n" + MODEL + TRAIN + """
print(torch.get_num_threads(), torch.get_float32_matmul_precision(), optimizer.param_groups[0].get("fused"))
"""

    def assert_all_refused(self, made_for, why):
        plain = self.run_forked(self.SOURCE)
        outcome = self.train(self.FIXES, self.SOURCE, made_for)
        for fix in self.FIXES:
            self.assert_refused(outcome, fix if isinstance(fix, str) else fix["id"], why)
        self.assertIn("the plan is refused: it was made for", outcome.err)
        self.assertEqual(outcome.out, plain.out)

    def test_a_plan_for_another_torch_is_refused(self):
        self.assert_all_refused({"torch": "1.13"}, "it was made for torch 1.13, and this is %s" % ".".join(torch.__version__.split(".")[:2]))

    def test_a_plan_for_a_gpu_is_refused_on_the_cpu(self):
        self.assert_all_refused({"gpu": "9.0"}, "it was made for a GPU of compute capability 9.0, and this is cpu")

    def test_a_plan_for_another_model_is_refused(self):
        self.assert_all_refused({"model": "Other-00000000"}, "it was made for the model Other-00000000, and this is ")

    def test_what_a_trial_tells_fits_the_next_run(self):
        told = self.run_forked(self.SOURCE, environment={"FULLWATT_TRIAL": "{}"}).facts("target")[-1]
        made_for = {name: told[name] for name in ("torch", "gpu", "model")}
        self.assertEqual(made_for["gpu"], "cpu")
        outcome = self.train(["gc-freeze"], self.SOURCE, made_for)
        self.assert_in_force(outcome, "gc-freeze")


@unittest.skipUnless(HAS_CALL_PLACE, "this torch has no place for it")
class ModelsTest(FixCase):
    def test_bf16_inside_and_float32_outside(self):
        outcome = self.train(["bf16"], """
import copy, pickle, torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)
    def forward(self, x):
        y = self.layer(x)
        self.inside = y.dtype
        return {"out": [y], "n": 3}
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(12):
    out = model(torch.randn(4, 8))
    out["out"][0].sum().backward()
    optimizer.step()
print(model.inside, out["out"][0].dtype, out["n"], out["out"][0].detach().numpy().dtype)
print(list(model.state_dict()), next(model.parameters()).dtype)
with torch.no_grad():
    print(model(torch.randn(4, 8))["out"][0].dtype)
with torch.autocast("cpu", torch.float16):
    model(torch.randn(4, 8))
    print(model.inside)
copied = pickle.loads(pickle.dumps(model.state_dict()))
print(copy.deepcopy(model)(torch.randn(4, 8))["out"][0].dtype)
""")
        self.assert_in_force(outcome, "bf16")
        self.assertEqual(outcome.out.split("\n")[:5], [
            "torch.bfloat16 torch.float32 3 float32", "['layer.weight', 'layer.bias'] torch.float32", "torch.float32", "torch.float16",
            "torch.float32",
        ])

    def test_every_model_of_several_is_reached(self):
        outcome = self.train(["bf16"], """
import torch
seen = []
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)
    def forward(self, x):
        y = self.layer(x)
        self.inside = y.dtype
        return y
first, second = Net(), Net()
optimizers = [torch.optim.SGD(net.parameters(), lr=0.01) for net in (first, second)]
for _ in range(12):
    second(first(torch.randn(4, 8))).sum().backward()
    for optimizer in optimizers:
        optimizer.step()
print(first.inside, second.inside)
""")
        self.assertEqual(outcome.out.strip(), "torch.bfloat16 torch.bfloat16")

    def test_parameters_of_another_kind_are_left_alone(self):
        outcome = self.train(["bf16", "channels-last"], MODEL + "model.double()\ndata = torch.utils.data.TensorDataset(torch.randn(64, 8).double(), torch.randn(64, 1).double())" + TRAIN)
        self.assert_refused(outcome, "bf16", "float64")
        self.assert_refused(outcome, "channels-last", "no two-dimensional convolution")

    def test_channels_last_inside_and_the_usual_order_outside(self):
        outcome = self.train(["channels-last"], """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3)
    def forward(self, x):
        self.inside = x.is_contiguous(memory_format=torch.channels_last)
        return self.conv(x)
model = Net()
weight = model.conv.weight
optimizer = torch.optim.Adam(model.parameters())
for _ in range(12):
    optimizer.zero_grad()
    y = model(torch.randn(2, 3, 8, 8))
    y.view(2, -1).sum().backward()
    optimizer.step()
print(model.inside, y.is_contiguous(), weight is model.conv.weight, weight.is_contiguous(memory_format=torch.channels_last))
""")
        self.assertEqual(outcome.out.strip(), "True True True True")
        self.assert_in_force(outcome, "channels-last")

    def test_a_compiled_model_has_the_same_losses(self):
        plain = self.train([], MODEL + TRAIN)
        compiled = self.train([{"id": "compile", "backend": "aot_eager"}], MODEL + TRAIN + "print(list(model.state_dict())[0])")
        self.assertEqual(compiled.out.split()[:-1], plain.out.split())
        self.assertEqual(compiled.out.split()[-1], "0.weight")
        self.assert_in_force(compiled, "compile")
        self.assertEqual(compiled.facts("compile_stats")[-1]["frames"], 1)

    def test_a_compiler_that_fails_leaves_the_model_as_it_is(self):
        plain = self.train([], MODEL + TRAIN)
        failing = "import torch._dynamo\n@torch._dynamo.register_backend\ndef broken(graph, inputs):\n    raise RuntimeError('planted')\n"
        outcome = self.train([{"id": "compile", "backend": "broken"}], MODEL + failing + TRAIN)
        self.assertEqual(outcome.out, plain.out)
        self.assert_refused(outcome, "compile", "compiling failed")

    def test_a_compiler_that_fails_for_one_model_serves_the_others(self):
        source = MODEL + """
import torch._dynamo
from torch._dynamo.backends.debugging import eager
@torch._dynamo.register_backend
def picky(graph, inputs):
    if any(value.shape[0] == 3 for value in inputs if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter)):
        raise RuntimeError('planted')
    return eager(graph, inputs)
other = torch.nn.Sequential(torch.nn.Linear(8, 1))
for _ in range(12):
    loss = model(torch.ones(4, 8)).sum() + other(torch.ones(3, 8)).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
        self.assert_in_force(self.train([{"id": "compile", "backend": "picky"}], source), "compile")


class OptimizersTest(FixCase):
    SOURCE = MODEL.replace("torch.optim.SGD(model.parameters(), lr=0.01)", "torch.optim.AdamW(model.parameters(), lr=0.01)")

    def test_a_fused_optimiser_trains_alike_and_saves_as_before(self):
        plain = self.train([], self.SOURCE + TRAIN + "print([group.get('fused') for group in optimizer.state_dict()['param_groups']])")
        outcome = self.train(["fused-optimizer"], self.SOURCE + TRAIN + """
print([group.get('fused') for group in optimizer.state_dict()['param_groups']])
print([group.get('fused') for group in optimizer.param_groups])
""")
        fix = self.fix(outcome, "fused-optimizer")
        if fix["state"] == "refused":
            self.assertIn("cpu", fix["text"])  # this torch has none for CPUs
            return
        losses = [[float(text) for text in run.out.split()[:32]] for run in (plain, outcome)]
        for one, other in zip(*losses):
            self.assertAlmostEqual(one, other, places=5)
        self.assertEqual(outcome.out.split("\n")[32:34], ["[None]", "[True]"])

    def test_an_optimiser_without_a_fused_form_stays(self):
        outcome = self.train(["fused-optimizer"], self.SOURCE.replace("AdamW", "RMSprop") + TRAIN)
        self.assert_refused(outcome, "fused-optimizer", "RMSprop has no fused form")


if __name__ == "__main__":
    unittest.main()
