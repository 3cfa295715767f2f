"""The fix that changes the batch size, and what a trial of it tells about memory and the longest batch."""

import json
import types
import unittest

from fixes_test import FixCase
from support import Case

from fullwatt import measure
from fullwatt.agent import EVALUATING
from fullwatt.patches import Patches

TRAINING = """
import torch
torch.manual_seed(0)
data = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1000)
held_out = torch.utils.data.DataLoader(data, batch_size=4)
loader = torch.utils.data.DataLoader(data, %s)
print(len(loader))
for epoch in range(2):
    for x, y in loader:
        loss = ((model(x) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        print(len(x), [len(a) for a, _ in held_out][0], optimizer.param_groups[0]["lr"])
"""
SCHEDULED = """
import torch
from torch.optim.lr_scheduler import *
from torch.utils.data import DataLoader
data = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
%(loader)s
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD([{"params": [model.weight]}, {"params": [model.bias], "lr": 0.3}], lr=0.1)
schedule = %(schedule)s
%(late)s
for x, y in loader:
    print(["%%.6g" %% group["lr"] for group in optimizer.param_groups])
    ((model(x) - y) ** 2).mean().backward()
    optimizer.step()
    schedule.step()
"""
LARGER = {"id": "batch-size", "size": 16, "learning_rate": "4"}


class BatchTest(FixCase):
    def test_a_loader_that_shuffles_gets_it_at_once_and_the_learning_rate_follows(self):
        outcome = self.train([LARGER], TRAINING % "batch_size=4, shuffle=True")
        self.assertEqual(outcome.out, "4\n" + "16 4 0.4\n" * 2)
        self.assert_in_force(outcome, "batch-size")
        self.assertEqual(self.fix(outcome, "batch-size")["text"], "16 instead of 4, learning rate × 4")

    def test_another_loader_gets_it_when_it_is_read_for_training(self):
        outcome = self.train([{"id": "batch-size", "size": 16}], TRAINING % "batch_size=4")
        self.assertEqual(outcome.out, "16\n" + "16 4 0.1\n" * 2)

    def test_the_learning_rate_follows_late_where_the_loader_does(self):
        for schedule in ("StepLR(optimizer, 1, 0.5)", "LambdaLR(optimizer, lambda step: (1 + step) / 10)", "LinearLR(optimizer, 0.5, 1, 2)", "CosineAnnealingLR(optimizer, 4)",
                         "SequentialLR(optimizer, [ConstantLR(optimizer, 0.1, 2), ExponentialLR(optimizer, 0.5)], [2])", "OneCycleLR(optimizer, 1.0, 10, div_factor=10)"):  # fmt: skip
            early = self.train([LARGER], SCHEDULED % {"loader": "loader = DataLoader(data, 4, shuffle=True)", "schedule": schedule, "late": ""})
            late = self.train([LARGER], SCHEDULED % {"loader": "", "schedule": schedule, "late": "loader = DataLoader(data, 4)"})
            self.assertEqual(late.out, early.out, schedule)
        self.assertEqual(self.train([LARGER], TRAINING % "batch_size=4").out, "16\n" + "16 4 0.4\n" * 2)

    def test_where_no_loader_has_it_the_learning_rate_stays(self):
        outcome = self.train([dict(LARGER, size=40)], TRAINING % "batch_size=4, shuffle=True")
        self.assert_refused(outcome, "batch-size", "64 samples only")
        self.assertEqual(outcome.out, "16\n" + "4 4 0.1\n" * 2)

    def test_batches_of_torchs_own_sampler_that_the_program_has_made_are_changed(self):
        own = "batch_sampler=torch.utils.data.BatchSampler(torch.utils.data.RandomSampler(data), 4, False)"
        outcome = self.train([LARGER], TRAINING % own)
        self.assertEqual(outcome.out, "16\n" + "16 4 0.4\n" * 2)
        self.assertEqual(self.fix(outcome, "batch-size")["text"], "16 instead of 4, learning rate × 4")

    def test_it_stands_beside_the_cache(self):
        outcome = self.train([{"id": "sample-cache", "gigabytes": 1}, LARGER], TRAINING % "batch_size=4, shuffle=True")
        self.assertEqual(outcome.out, "4\n" + "16 4 0.4\n" * 2)
        self.assert_in_force(outcome, "sample-cache")

    def test_batches_of_the_programs_own_and_small_data_sets_are_left_alone(self):
        own = "batch_sampler=torch.utils.data.BatchSampler(torch.utils.data.RandomSampler(data), 4, False)"
        self.assertIn("4 4", self.train([dict(LARGER, size=40)], TRAINING % "batch_size=4, shuffle=True").out)
        self.assert_refused(self.train([dict(LARGER, size=40)], TRAINING % "batch_size=4, shuffle=True"), "batch-size", "64 samples only")
        self.assert_refused(self.train([LARGER], TRAINING % ("batch_sampler=type('Own', (torch.utils.data.BatchSampler,), {})" + own[len("batch_sampler=torch.utils.data.BatchSampler"):])),
                            "batch-size", "by size")  # fmt: skip


SEQUENCES = """
import torch
torch.manual_seed(0)
class Sequences(torch.utils.data.Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, i):
        return torch.ones(100 if i == 17 else 90 if i == 5 else 1 + i %% 7, 3)
def padded(samples):
    %(collate)s
    return torch.nn.utils.rnn.pad_sequence(samples%(padding)s)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.Adam(model.parameters())
loader = torch.utils.data.DataLoader(Sequences(), %(batch)s, shuffle=True, collate_fn=padded, num_workers=%(workers)d)
held_out = torch.utils.data.DataLoader(Sequences(), 4, collate_fn=padded)
with torch.no_grad():
    print("held out", [len(x) for x in held_out])
while True:
    for x in loader:
        model(x).sum().backward()
        optimizer.step()
        print(x.shape[0], x.shape[1], flush=True)
"""
USUAL = {"collate": "", "padding": ", batch_first=True", "batch": "4", "workers": 0}


class LongestTest(FixCase):
    def trial(self, fixes=(), source=SEQUENCES, **wanted):
        """Six steps of a training; the shapes of five batches are printed, since the last step ends it."""
        form = {**USUAL, **{name: wanted.pop(name) for name in list(wanted) if name in USUAL}}
        environment = {"FULLWATT_TRIAL": json.dumps(wanted), "FULLWATT_STEPS": "6", "FULLWATT_WINDOWS": "off"}
        return self.train(fixes, source % form, environment=environment)

    def shapes(self, outcome):
        return [tuple(map(int, line.split())) for line in outcome.out.splitlines()[1:]]

    def test_the_longest_samples_are_told_when_the_steps_are_done(self):
        for form in ({}, {"padding": ""}, {"workers": 2}):
            told = self.trial(lengths=20, **form).fact("lengths")
            self.assertEqual((told["varies"], told["read"], told["of"], told["longest"][:2], len(told["longest"])), (True, 40, 40, [17, 5], 40), form)

    def test_a_loader_that_only_the_loop_holds_is_looked_at(self):
        source = SEQUENCES.replace("for x in loader:", "held = [loader]; del loader\n    for x in held.pop():")
        self.assertEqual(self.trial(source=source, lengths=20).fact("lengths")["read"], 40)

    def test_samples_that_are_made_alike_do_not_vary(self):
        told = self.trial(lengths=20, collate="samples = [sample[:1] for sample in samples]").fact("lengths")
        self.assertEqual((told["varies"], told["read"], told["longest"]), (False, 40, []))

    def test_what_cannot_be_read_is_told_as_such(self):
        self.assertEqual(self.trial(lengths=20, collate="assert len(samples) == 4").fact("lengths")["read"], 0)
        self.assertEqual(self.trial(lengths=1e-9).fact("lengths")["read"], 1)

    def test_one_batch_is_as_long_as_any_can_be_and_the_others_are_the_programs(self):
        plain, longest = self.trial(), self.trial(longest={"indices": [17], "of": 40})
        shapes = self.shapes(longest)
        self.assertEqual(shapes.pop(2), (4, 100))
        own = self.shapes(plain)
        own.pop(2)
        self.assertEqual((shapes, longest.out.splitlines()[0]), (own, plain.out.splitlines()[0]))

    def test_it_is_as_large_as_the_batch_that_is_tried(self):
        for workers in (0, 2):
            outcome = self.trial([{"id": "batch-size", "size": 8}], longest={"indices": [17, 5], "of": 40}, workers=workers)
            self.assert_in_force(outcome, "batch-size")
            self.assertEqual(self.shapes(outcome)[2], (8, 100))

    def test_it_is_left_out_where_the_samples_are_others(self):
        self.assertEqual(self.trial(longest={"indices": [17], "of": 41}).out, self.trial().out)


class FakeCards:
    """Two cards; what torch has on each, in bytes."""

    TOTAL = 1000

    def __init__(self, reserved, fraction=1.0, beside=100):
        self.reserved, self.fraction, self.beside, self.resets = reserved, fraction, beside, 0
        self.peak = 0

    def is_initialized(self):
        return True

    def device_count(self):
        return len(self.reserved)

    def current_device(self):
        return 0

    def memory_reserved(self, device):
        return self.reserved[device]

    def mem_get_info(self, device):
        return self.TOTAL - self.reserved[device] - self.beside, self.TOTAL

    def get_per_process_memory_fraction(self, device):
        return self.fraction

    def reset_peak_memory_stats(self, device):
        self.resets += 1
        self.peak = 0

    def memory_stats_as_nested_dict(self, device):
        return {"allocated_bytes": {"all": {"current": 1, "peak": self.peak}}, "reserved_bytes": {"all": dict.fromkeys(("current", "peak"), self.reserved[device])}, "num_ooms": 2}


class FakeAgent:
    def __init__(self):
        self.detail, self.at_end, self.told, self.patches = 0, [], {}, Patches()
        self.facts = types.SimpleNamespace(add=lambda kind, **fact: self.told.update({kind: fact}))

    def attempt(self, action, *arguments):
        try:
            return action(*arguments)
        except Exception:
            return None


class MemoryTest(Case):
    def memory(self, cards):
        agent = FakeAgent()
        return agent, measure.Memory(agent, types.SimpleNamespace(cuda=cards))

    def told(self, cards):
        agent, memory = self.memory(cards)
        memory.tell()
        return agent.told["memory"]

    def test_the_card_that_holds_the_model_is_told_and_not_the_current_one(self):
        told = self.told(FakeCards([0, 300]))
        self.assertEqual((told["device"], told["card_bytes"], told["beside_bytes"], told["oom"]), (1, 1000, 100, 2))
        self.assertEqual(self.told(FakeCards([0, 0]))["device"], 0)

    def test_a_limit_that_the_program_has_set_is_told(self):
        self.assertEqual(self.told(FakeCards([300], fraction=0.25))["allowed_bytes"], 250)

    def test_where_torch_does_not_tell_the_limit_what_is_set_is_noted(self):
        set_it = lambda fraction, device=None: None  # noqa: E731
        cuda = types.SimpleNamespace(set_per_process_memory_fraction=set_it, memory=types.SimpleNamespace(set_per_process_memory_fraction=set_it))
        fraction = measure.fraction_reader(types.SimpleNamespace(cuda=cuda), Patches())
        self.assertEqual(fraction(0), 1.0)
        cuda.memory.set_per_process_memory_fraction(0.5, 0)
        self.assertEqual(fraction(0), 0.5)
        cuda.set_per_process_memory_fraction(0.25)
        self.assertEqual(fraction(0), 0.25)

    def test_without_that_call_the_other_figures_are_there(self):
        cards = FakeCards([300])
        cards.mem_get_info = None
        self.assertEqual(self.told(cards)["peak_reserved_bytes"], 300)

    def test_an_evaluation_has_a_peak_of_its_own(self):
        cards = FakeCards([300])
        agent, memory = self.memory(cards)
        cards.peak = 50
        memory.turn()
        agent.detail, cards.peak = EVALUATING, 200
        memory.turn()
        agent.detail, cards.peak = 0, 60
        memory.tell()
        self.assertEqual((agent.told["memory"]["training_peak_bytes"], agent.told["memory"]["peak_allocated_bytes"], cards.resets), (60, 200, 2))


EVALUATED = """
import torch
cuda = torch.cuda
cuda.device_count = lambda: 1
cuda.current_device = lambda: 0
cuda.memory_reserved = lambda device: 0
cuda.memory_stats_as_nested_dict = lambda device: {}
cuda.reset_peak_memory_stats = lambda device: print("anew")
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(8):
    if step == 4:
        cuda.is_initialized = lambda: True
        model.eval()
        print("evaluates")
        model.train()
        cuda.is_initialized = lambda: False
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
"""


class EvaluationTest(FixCase):
    def test_in_a_trial_peaks_begin_anew_where_an_evaluation_begins_and_ends(self):
        trial = {"FULLWATT_TRIAL": "{}", "FULLWATT_STEPS": "100", "FULLWATT_WINDOWS": "off"}
        self.assertEqual(self.train([], EVALUATED, environment=trial).out, "anew\nevaluates\nanew\n")
        self.assertEqual(self.train([], EVALUATED).out, "evaluates\n")


if __name__ == "__main__":
    unittest.main()
