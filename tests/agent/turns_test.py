"""Fixes that take turns within one trial: which pairs tell, and what is kept."""

import inspect
import json
import os
import random
import unittest

import torch

from support import MODEL, Case

from fullwatt.fixes import optimizers, turns


class PairsTest(unittest.TestCase):
    """Whether pairs tell that a fix pays."""

    MOST_PAIRS = 12

    def verdicts(self, speedup, noise, outliers=0.0, count=2000):
        chance = random.Random(1)

        def half():
            return chance.lognormvariate(0, noise) * (3 if chance.random() < outliers else 1)

        pairs, kept = 0, 0
        for _ in range(count):
            ratios = []
            while len(ratios) < self.MOST_PAIRS and not turns.is_decided(ratios):
                ratios.append(speedup * half() / half())
            pairs += len(ratios)
            kept += turns.pays(ratios)
        return kept / count, pairs / count

    def test_what_does_nothing_is_seldom_kept(self):
        for noise in (0.002, 0.02, 0.1):
            kept, pairs = self.verdicts(1.0, noise)
            self.assertLess(kept, 0.07)
            self.assertLess(pairs, 8)

    def test_what_pays_is_kept_also_where_some_steps_are_long(self):
        self.assertGreater(self.verdicts(1.05, 0.015)[0], 0.95)
        self.assertGreater(self.verdicts(1.3, 0.05, outliers=0.03)[0], 0.95)

    def test_what_is_far_faster_is_known_soon(self):
        kept, pairs = self.verdicts(2.0, 0.05)
        self.assertEqual((kept, pairs), (1.0, 3.0))

    def test_long_steps_of_other_reasons_do_not_decide(self):
        """A machine may be slow for a second: three pairs of which two met that say nothing about the size of a gain."""
        self.assertFalse(turns.is_decided([17.0, 12.0, 1.3]))
        self.assertTrue(turns.is_decided([1.4, 1.3, 1.3]))
        self.assertTrue(turns.is_decided([17.0, 12.0, 1.3, 1.3, 1.4]))

    def test_what_is_faster_by_less_than_it_is_worth_is_not_kept(self):
        self.assertEqual(self.verdicts(1.004, 0.0005)[0], 0)


class TurnsCase(Case):
    """Fixes that are turned on and off within one trial."""

    def planned(self, fixes, source, steps, wanted):
        plan = os.path.join(self.scratch, "plan.json")
        with open(plan, "w") as file:
            json.dump({"fixes": fixes}, file)
        environment = {"FULLWATT_TRIAL": json.dumps(wanted), "FULLWATT_PLAN": plan, "FULLWATT_STEPS": str(steps), "FULLWATT_WINDOWS": "off"}
        outcome = self.run_forked(MODEL + source, environment=environment)
        self.assertEqual(outcome.code, 0, outcome.err)
        return outcome

    def turns(self, fixes, source, pairs=3, most_seconds=600):
        wanted = {"fixes": [fix["id"] for fix in fixes], "pairs": pairs, "seconds": 0.05, "most_seconds": most_seconds}
        outcome = self.planned(fixes, source, 2000, {"turns": wanted})
        return outcome, {fact["id"]: fact for fact in outcome.facts("turn")}


def slow_training(seconds, shown="''"):
    """A training on two threads whose steps take so long by the clock of the turns, and which shows something after each; both are expressions."""
    return f"""
import fullwatt.fixes.turns
now = fullwatt.fixes.turns.perf_counter()
fullwatt.fixes.turns.perf_counter = lambda: now
torch.set_num_threads(2)
for step in range(3000):
    optimizer.zero_grad()
    loss_of(torch.randn(4, 8), torch.ones(4, 1)).backward()
    now += {seconds}
    optimizer.step()
    print({shown}, flush=True)
print("ran to its end")
"""


class TurnsTest(TurnsCase):
    SECONDS = "0.02 if torch.get_num_threads() == 2 else 0.005"
    SOURCE = slow_training(SECONDS)

    def test_what_pays_is_kept_and_the_next_is_measured_on_top_of_it(self):
        outcome, told = self.turns([{"id": "threads", "count": 1}, {"id": "tf32"}], self.SOURCE)
        self.assertNotIn("ran to its end", outcome.out)
        threads, tf32 = told["threads"], told["tf32"]
        self.assertTrue(threads["kept"])
        self.assertEqual((len(threads["with_ms"]), len(threads["without_ms"])), (3, 3))
        self.assertGreater(min(threads["without_ms"]), max(threads["with_ms"]))
        self.assertLess(max(tf32["without_ms"]), min(threads["without_ms"]))
        self.assertEqual(tf32["state"], "measured")

    def test_what_did_not_pay_gets_another_turn_when_the_step_is_much_shorter(self):
        """tf32 hides behind 40 ms that `threads` takes away."""
        threads, is_tf32 = "torch.get_num_threads()", "torch.backends.cuda.matmul.allow_tf32"
        source = slow_training(f"0.04 if {threads} == 2 else 0.005 if {is_tf32} else 0.01", shown=f"{is_tf32}, {threads}")
        outcome, told = self.turns([{"id": "tf32"}, {"id": "threads", "count": 1}], source, pairs=5)
        turns = [(fact["id"], fact["kept"]) for fact in outcome.facts("turn") if fact["state"] == "measured"]
        self.assertEqual(turns, [("tf32", False), ("threads", True), ("tf32", True)])
        self.assertLess(max(told["tf32"]["without_ms"]), min(told["threads"]["without_ms"]))
        self.assertEqual(outcome.out.splitlines()[-1], "True 1")

    def test_what_did_not_pay_has_no_other_turn_when_the_step_is_about_as_long(self):
        outcome, _ = self.turns([{"id": "tf32"}, {"id": "gradients-to-none"}], self.SOURCE, pairs=5)
        told = [fact["id"] for fact in outcome.facts("turn") if fact["state"] == "measured"]
        self.assertEqual(len(told), len(set(told)))

    @unittest.skipUnless(hasattr(torch.nn.Module, "compile"), "this torch has no place for it")
    def test_models_and_optimisers_take_turns(self):
        source = """
seen = []
model.register_forward_hook(lambda module, args, result: seen.append(str(result.dtype)))
for step in range(3000):
    optimizer.zero_grad()
    loss_of(torch.randn(4, 8), torch.ones(4, 1)).backward()
    optimizer.step()
    print(seen[-1], optimizer.param_groups[0].get("fused"), flush=True)
"""
        outcome, told = self.turns([{"id": "bf16"}, {"id": "fused-optimizer"}], source, pairs=2)
        self.assertEqual(set(told), {"bf16", "fused-optimizer"})
        lines = outcome.out.strip().split("\n")
        kinds = [line.split()[0] for line in lines]
        self.assertIn("torch.bfloat16", kinds)
        if "fused" in inspect.signature(torch.optim.SGD).parameters:  # else the trial ends with the first fix
            self.assertIn("torch.float32", kinds[kinds.index("torch.bfloat16"):])
            self.assertIn("True", {line.split()[1] for line in lines})

    def test_what_optimisers_remember_lies_as_its_parameters_do(self):
        source = """
model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Conv2d(4, 2, 1), torch.nn.Flatten(), torch.nn.Linear(72, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(3000):
    optimizer.zero_grad(set_to_none=False)
    model(torch.randn(2, 3, 8, 8)).sum().backward()
    optimizer.step()
    weight = model[0].weight
    alike = all(value.stride() == p.stride() for p in model.parameters() for value in [p.grad, *optimizer.state[p].values()] if value.shape == p.shape)
    print(weight.is_contiguous(), alike, flush=True)
"""
        fixes = [{"id": "channels-last"}] + [{"id": "fused-optimizer"}] * ("cpu" in optimizers.supported(torch))
        outcome, told = self.turns(fixes, source, pairs=2)
        self.assertTrue(all(fact["state"] == "measured" for fact in told.values()), told)
        lines = set(outcome.out.strip().split("\n"))
        self.assertEqual(lines, {"True True", "False True"})

    def test_a_program_that_ends_too_soon_for_its_first_fix_tells_what_it_measured(self):
        undecided = "import fullwatt.fixes.turns\nfullwatt.fixes.turns.is_decided = lambda ratios: False\n"
        for steps, state in ((600, "measured"), (40, "begun")):
            outcome, told = self.turns([{"id": "threads", "count": 1}], undecided + self.SOURCE.replace("range(3000)", "range(%d)" % steps), pairs=1000)
            self.assertIn("ran to its end", outcome.out)
            self.assertEqual(told["threads"]["state"], state)

    @unittest.skipUnless(hasattr(torch.backends.cuda.matmul, "fp32_precision"), "this torch has no such name for it")
    def test_a_setting_is_turned_off_to_the_very_value_that_it_had(self):
        source = slow_training(self.SECONDS, shown="torch.backends.cuda.matmul.fp32_precision")
        never = "import fullwatt.fixes.turns\nfullwatt.fixes.turns.pays = lambda ratios: False\n"
        outcome, _ = self.turns([{"id": "tf32"}, {"id": "threads", "count": 1}], never + source, pairs=1)
        values = outcome.out.split()
        self.assertEqual(values[0], values[-1])
        self.assertIn("tf32", values)

    @unittest.skipUnless(hasattr(torch.nn.Module, "compile"), "this torch has no place for it")
    def test_what_gives_up_while_it_is_measured_is_not_measured_to_the_end(self):
        outcome, told = self.turns([{"id": "compile", "backend": "of_nobody"}, {"id": "tf32"}], self.SOURCE, pairs=5)
        self.assertEqual((told["compile"]["kept"], len(told["compile"]["with_ms"])), (False, 1))
        self.assertEqual(told["tf32"]["state"], "measured")
        fix = [fact for fact in outcome.facts("fix") if fact["id"] == "compile"][-1]
        self.assertEqual(fix["state"], "refused")
        self.assertIn("of_nobody", fix["text"])

    def test_no_turn_is_taken_when_the_time_is_over(self):
        outcome, told = self.turns([{"id": "threads", "count": 1}, {"id": "tf32"}], self.SOURCE, pairs=1000, most_seconds=0)
        self.assertNotIn("ran to its end", outcome.out)
        self.assertEqual(told, {})

    def test_what_is_undecided_when_the_time_is_over_is_not_told(self):
        undecided = "import fullwatt.fixes.turns\nfullwatt.fixes.turns.is_decided = lambda ratios: False\n"
        late = "fullwatt.fixes.turns.Turns._is_late = lambda turns: turns._under_way is not None\n"
        outcome, told = self.turns([{"id": "threads", "count": 1}, {"id": "tf32"}], undecided + late + self.SOURCE, pairs=1000)
        self.assertNotIn("ran to its end", outcome.out)
        self.assertEqual({name: fact["state"] for name, fact in told.items()}, {"threads": "begun"})

    def test_gradients_take_turns(self):
        source = """
for step in range(3000):
    optimizer.zero_grad(set_to_none=False)
    print(model[0].weight.grad is None, flush=True)
    loss_of(torch.randn(4, 8), torch.ones(4, 1)).backward()
    optimizer.step()
"""
        outcome, told = self.turns([{"id": "gradients-to-none"}], source, pairs=2)
        gradients = told["gradients-to-none"]
        self.assertEqual((gradients["state"], len(gradients["with_ms"]), len(gradients["without_ms"])), ("measured", 2, 2))
        let_go = outcome.out.split()[1:]
        first = let_go.index("True")
        self.assertIn("False", let_go[:first])
        self.assertIn("False", let_go[first:], "it is turned off again")

    def test_a_start_for_a_fix_that_is_refused_is_over_soon(self):
        fixes = [{"id": "loader-workers", "count": 2}, {"id": "threads", "count": 1}]
        source = """
class Numbers(torch.utils.data.IterableDataset):
    def __iter__(self): return (torch.ones(8) for _ in range(4000))
for x in torch.utils.data.DataLoader(Numbers(), batch_size=4):
    optimizer.zero_grad()
    loss_of(x, torch.ones(4, 1)).backward()
    optimizer.step()
"""
        for tries, is_over in (("loader-workers", True), ("threads", False)):
            steps = self.planned(fixes, source, 60, {"tries": tries}).spool().header.step_count
            self.assertLess(steps, 40) if is_over else self.assertEqual(steps, 60)

    def test_what_cannot_be_applied_is_passed_over(self):
        outcome, told = self.turns([{"id": "channels-last"}, {"id": "threads", "count": 1}], self.SOURCE)
        self.assertEqual(told["channels-last"]["state"], "begun")
        self.assertTrue(told["threads"]["kept"])
        refused = [fact for fact in outcome.facts("fix") if fact["id"] == "channels-last"][-1]
        self.assertEqual(refused["state"], "refused")


if __name__ == "__main__":
    unittest.main()
