"""Every kind of training loop is cut into steps, phases and samples, with the real recorder."""

import unittest

import torch
import torch._dynamo  # every optimiser imports it: once here instead of in each child
from support import MODEL, PACKAGE_PARENT, Case

PLAIN = MODEL + """
for epoch in range(3):
    for x, y in torch.utils.data.DataLoader(data, batch_size=16):
        loss = loss_of(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item().hex())
"""


class LoopsTest(Case):
    def assert_steps(self, outcome, steps, samples):
        self.assertEqual(outcome.code, 0, outcome.err)
        self.assertEqual(outcome.err, "")
        header = outcome.spool().header
        self.assertEqual((header.step_count, header.samples_total), (steps, samples))

    def test_a_plain_loop_has_steps_phases_and_samples(self):
        outcome = self.run_forked(PLAIN)
        self.assert_steps(outcome, 12, 3 * 64)
        spool = outcome.spool()
        for step in spool.steps():
            for phase in ("data", "backward", "optimizer"):
                self.assertGreater(step.phases[phase], 0, phase)
        self.assertEqual(spool.header.state, 4)
        self.assertGreater(spool.header.hook_cost_ns, 0)

    def test_each_phase_of_a_steady_step_has_its_own_length(self):
        source = MODEL + """
import time
class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 30
    def __getitem__(self, i):
        time.sleep(0.002)
        return data[i]
class SlowBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, gradient):
        time.sleep(0.004)
        return gradient
class SlowSgd(torch.optim.SGD):
    def step(self, closure=None):
        time.sleep(0.006)
        return super().step(closure)
optimizer = SlowSgd(model.parameters(), lr=0.01)
for x, y in torch.utils.data.DataLoader(Slow(), batch_size=1):
    SlowBackward.apply(loss_of(x, y)).backward()
    optimizer.step()
    time.sleep(0.008)
"""
        outcome = self.run_forked(source)
        self.assert_steps(outcome, 30, 30)
        steps = outcome.spool().steps()
        for before, step in list(zip(steps, steps[1:]))[11:]:
            length = step.end_ns - before.end_ns
            self.assertGreaterEqual(step.phases["data"], 2_000_000)
            self.assertGreaterEqual(step.phases["backward"], 4_000_000)
            self.assertGreaterEqual(step.phases["optimizer"], 6_000_000)
            self.assertLessEqual(sum(step.phases.values()), length - 8_000_000)

    def test_losses_are_the_same_to_the_bit_with_and_without_the_agent(self):
        source = PLAIN + "print(torch.random.get_rng_state().sum(), __import__('random').random())\n"
        source = "import random\nrandom.seed(1)\n" + source
        self.assertEqual(self.run_forked(source).out, self.run_forked(source, agent=False).out)

    def test_without_a_loader_samples_are_those_that_enter_the_model(self):
        source = MODEL + """
for i in range(15):
    loss = loss_of(torch.randn(5, 8), 0)
    loss.backward()
    optimizer.step()
"""
        outcome = self.run_forked(source)
        self.assertEqual(outcome.spool().header.step_count, 15)
        self.assertEqual([step.samples for step in outcome.spool().steps()][1:], [5] * 14)

    def test_accumulated_batches_belong_to_one_step(self):
        source = MODEL + """
for epoch in range(8):
    for i, (x, y) in enumerate(torch.utils.data.DataLoader(data, batch_size=8)):
        loss_of(x, y).backward()
        if i % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
"""
        outcome = self.run_forked(source)
        self.assert_steps(outcome, 16, 8 * 64)
        self.assertEqual({step.samples for step in outcome.spool().steps()}, {32})

    def test_a_vector_of_features_is_one_sample(self):
        source = MODEL + """
for i in range(15):
    model(torch.randn(8)).sum().backward()
    optimizer.step()
"""
        outcome = self.run_forked(source)
        self.assertEqual([step.samples for step in outcome.spool().steps()][1:], [1] * 14)

    def test_two_optimisers_that_share_a_batch_count_its_samples_once(self):
        source = MODEL + """
other = torch.nn.Linear(8, 1)
second = torch.optim.Adam(other.parameters())
for epoch in range(10):
    for x, y in torch.utils.data.DataLoader(data, batch_size=32):
        (other(x) - y).pow(2).mean().backward()
        second.step()
        loss_of(x, y).backward()
        optimizer.step()
"""
        outcome = self.run_forked(source)
        self.assertEqual(outcome.code, 0, outcome.err)
        steps = outcome.spool().steps()
        self.assertEqual(len(steps), 40)
        self.assertEqual([step.optimizer for step in steps[:4]], [0, 1, 0, 1])
        self.assertEqual([step.samples for step in steps[-6:]], [32, 0] * 3)
        self.assertEqual([fact["class"] for fact in outcome.facts("optimizer")], ["Adam", "SGD"])
        self.assertEqual([outcome.facts("optimizer")[0][name] for name in ("tensors", "of_torch")], [2, True])

    def test_loaders_that_are_never_asked_for_a_batch_too_many(self):
        """As in frameworks that count: epochs are told all the same, and loaders that only an evaluation reads are told apart."""
        source = MODEL + """
def epoch(loader):
    for _, (x, y) in zip(range(len(loader)), loader):
        loss = loss_of(x, y)
        if torch.is_grad_enabled():
            loss.backward()
            optimizer.step()
with torch.no_grad():
    epoch(torch.utils.data.DataLoader(data, batch_size=16))
kept = torch.utils.data.DataLoader(data, batch_size=32, num_workers=1, persistent_workers=True)
for number in range(6):
    epoch(kept if number < 3 else torch.utils.data.DataLoader(data, batch_size=32, num_workers=1))
"""
        outcome = self.run_forked(source)
        self.assertEqual(outcome.code, 0, outcome.err)
        loaders = {fact["id"]: fact["trains"] for fact in outcome.facts("loader")}
        self.assertEqual(loaders, {0: False, 1: True, 2: True, 3: True, 4: True})
        told = [(fact["loader"], fact["number"]) for fact in outcome.facts("epoch") if fact["loader"] > 0]
        self.assertEqual(told, [(1, 1), (1, 2), (2, 1), (3, 1)])  # what follows the last ones is not known

    def test_loaders_that_do_not_know_their_length(self):
        """Iterable data sets, and samplers without a length: given up early or read to the end, their workers are ended as they would be."""
        source = MODEL + """
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter([(torch.randn(8), torch.randn(1)) for _ in range(16)])
class Endless:
    def __iter__(self):
        return iter([[0, 1], [2, 3], [4, 5]] * 4)
import gc, multiprocessing
for loader in (torch.utils.data.DataLoader(Stream(), batch_size=2, num_workers=1), torch.utils.data.DataLoader(data, batch_sampler=Endless(), num_workers=1)):
    for most in (3, 100, 3):
        for _, (x, y) in zip(range(most), loader):
            loss_of(x, y).backward()
            optimizer.step()
gc.collect()
print(multiprocessing.active_children())
"""
        outcome = self.run_forked(source)
        self.assertEqual((outcome.code, outcome.out, outcome.err), (0, "[]\n", ""))
        self.assertEqual(outcome.fact("agent")["errors"], 0)

    def test_iterators_of_another_library(self):
        """One that takes the place of the loader's own, and takes no attributes."""
        source = MODEL + """
class Other(torch.utils.data.DataLoader):
    def __iter__(self):
        yield from super().__iter__()
own = torch.utils.data.DataLoader.__iter__
def generating(self):
    yield from own(self)
torch.utils.data.DataLoader.__iter__ = generating
for kind in (torch.utils.data.DataLoader, Other):
    for x, y in kind(data, batch_size=32):
        loss_of(x, y).backward()
        optimizer.step()
"""
        outcome = self.run_forked(source)
        self.assertEqual((outcome.code, outcome.err), (0, ""))
        self.assertEqual(outcome.fact("agent")["errors"], 0)

    def test_a_scaler_that_is_switched_off_changes_nothing(self):
        source = MODEL + """
scaler = torch.cuda.amp.GradScaler(enabled=False) if not hasattr(torch.amp, "GradScaler") else torch.amp.GradScaler("cpu", enabled=False)
for x, y in torch.utils.data.DataLoader(data, batch_size=4):
    scaler.scale(loss_of(x, y)).backward()
    scaler.step(optimizer)
    scaler.update()
"""
        outcome = self.run_forked(source)
        self.assert_steps(outcome, 16, 64)
        self.assertEqual(outcome.fact("scaler")["enabled"], False)

    def test_the_closure_of_lbfgs_is_not_the_optimisers_time(self):
        source = MODEL + """
import time
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
x, y = data[:]
def closure():
    optimizer.zero_grad()
    loss = loss_of(x, y)
    loss.backward()
    time.sleep(0.02)
    return loss
for i in range(12):
    optimizer.step(closure)
"""
        outcome = self.run_forked(source)
        self.assertEqual(outcome.code, 0, outcome.err)
        steps = outcome.spool().steps()
        self.assertEqual(len(steps), 12)
        later = steps[2:]
        self.assertLess(sum(step.phases["optimizer"] for step in later), later[-1].end_ns - steps[1].end_ns - 10 * 20_000_000)

    def test_an_optimiser_that_calls_another_counts_once(self):
        source = MODEL + """
class Outer(torch.optim.Optimizer):
    def __init__(self, inner):
        super().__init__(inner.param_groups, {})
        self.inner = inner
    def step(self, closure=None):
        self.inner.step()
outer = Outer(optimizer)
for i in range(14):
    loss_of(*data[:]).backward()
    outer.step()
"""
        outcome = self.run_forked(source)
        self.assertEqual(outcome.code, 0, outcome.err)
        self.assertEqual(outcome.spool().header.step_count, 14)

    def test_a_step_that_raises_is_no_step_and_the_next_one_is(self):
        source = MODEL + """
class Failing(torch.optim.SGD):
    def step(self, closure=None):
        raise ValueError("once")
failing = Failing(model.parameters(), lr=0.1)
for i in range(12):
    loss_of(*data[:]).backward()
    if i % 3 == 0:
        try:
            failing.step()
        except ValueError as error:
            print(error)
    optimizer.step()
"""
        outcome = self.run_forked(source)
        self.assertEqual(outcome.code, 0, outcome.err)
        self.assertEqual(outcome.out, "once\n" * 4)
        self.assertEqual(outcome.spool().header.step_count, 12)

    def test_without_a_torch_optimiser_each_backward_is_a_step(self):
        source = """
import torch
model = torch.nn.Linear(4, 1)
for i in range(60):
    model(torch.randn(3, 4)).sum().backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.01 * p.grad
            p.grad = None
"""
        outcome = self.run_forked(source)
        self.assertEqual((outcome.code, outcome.err), (0, ""))
        self.assertEqual(outcome.spool().header.step_count, 41)

    def test_inner_backward_passes_of_checkpointing_count_once(self):
        source = MODEL + """
from torch.utils.checkpoint import checkpoint
inner = torch.nn.Linear(8, 8)
for i in range(14):
    x = torch.randn(4, 8, requires_grad=True)
    loss_of(checkpoint(inner, x, use_reentrant=True), 0).backward()
    optimizer.step()
"""
        outcome = self.run_forked(source)
        self.assertEqual(outcome.code, 0, outcome.err)
        spool = outcome.spool()
        for before, step in zip(spool.steps(), spool.steps()[1:]):
            self.assertLessEqual(step.phases["backward"], step.end_ns - before.end_ns)
        self.assertEqual(spool.steps()[-1].samples, 4)

    def test_batches_of_varying_size_are_counted_as_they_are(self):
        source = MODEL + """
sizes = [3, 5, 8, 16, 32] * 4
class Batches(torch.utils.data.Sampler):
    def __init__(self):
        pass
    def __iter__(self):
        return iter([list(range(size)) for size in sizes])
    def __len__(self):
        return len(sizes)
for x, y in torch.utils.data.DataLoader(data, batch_sampler=Batches()):
    loss_of(x, y).backward()
    optimizer.step()
"""
        outcome = self.run_forked(source)
        self.assertEqual(outcome.code, 0, outcome.err)
        self.assertEqual([step.samples for step in outcome.spool().steps()][2:], ([3, 5, 8, 16, 32] * 4)[2:])

    def test_forked_workers_time_their_batches_in_their_own_spools(self):
        source = MODEL + """
import time
class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, i):
        time.sleep(0.001)
        return data[i]
def collate(items):
    time.sleep(0.004)
    return torch.utils.data.default_collate(items)
for x, y in torch.utils.data.DataLoader(Slow(), batch_size=4, num_workers=2, collate_fn=collate):
    loss_of(x, y).backward()
    optimizer.step()
"""
        outcome = self.run_forked(source)
        self.assert_steps(outcome, 16, 64)
        workers = [spool for spool in outcome.spools() if spool.header.role == 1]
        self.assertEqual(len(workers), 2)
        fetches = [record for spool in workers for record in spool.of_kind("fetch")]
        self.assertEqual(len(fetches), 16)
        self.assertEqual({record.id for record in fetches}, {1, 2})
        for record in fetches:
            self.assertEqual(record.c, 4)
            self.assertGreaterEqual(record.b, 4_000_000)
            self.assertGreaterEqual(record.duration_ns, record.b + 4_000_000)
            self.assertLess(record.a, record.duration_ns)
        self.assertEqual(outcome.spool().of_kind("fetch"), [])

    def test_a_function_that_pads_is_told_of_once_by_whoever_fetches(self):
        first = "    loss = loss_of(batch[0][:, :8].contiguous(), batch[1])\n"
        for name, collate, loop, is_uneven in (
            ("padded", "torch.nn.utils.rnn.pad_sequence([x[:8 + at % 3] for at, (x, _) in enumerate(all)], batch_first=True)[:, :8 + calls % 2], torch.stack([y for _, y in all])", first, True),
            ("turned", "torch.stack([x for x, _ in all], 1), torch.stack([y for _, y in all])", "    loss = loss_of(batch[0].transpose(0, 1)[:, :8], batch[1])\n", True),
            ("stacked", "torch.stack([x for x, _ in all]), torch.stack([y for _, y in all]), [y for _, y in all][:1] + [y[:0] for _, y in all][1:]", first, False),
        ):  # fmt: skip
            source = MODEL + "calls = 0\ndata = torch.utils.data.TensorDataset(torch.randn(64, 12), torch.randn(64, 1))\ndef %s(all):\n    global calls\n    calls += 1\n    return %s\n" % (name, collate)
            for workers in (0, 1):
                with self.subTest(function=name, workers=workers):
                    loader = "for batch in torch.utils.data.DataLoader(data, batch_size=7, collate_fn=%s, num_workers=%d):\n" % (name, workers)
                    outcome = self.run_forked(source + loader + loop + "    loss.backward()\n    optimizer.step()\n")
                    self.assertEqual((outcome.code, outcome.err), (0, ""))
                    told = [fact["function"] for fact in outcome.facts("padding")]
                    self.assertEqual(told, [name] if is_uneven else [])

    def test_without_workers_the_program_itself_times_its_batches(self):
        outcome = self.run_forked(PLAIN)
        fetches = outcome.spool().of_kind("fetch")
        self.assertEqual([record.c for record in fetches], [16] * 10)  # those of the warm-up
        self.assertEqual({record.id for record in fetches}, {0})

    def test_a_forked_child_that_trains_has_its_own_spool(self):
        source = PLAIN + """
import os, sys
sys.stdout.flush()
child = os.fork()
if child == 0:
    for i in range(5):
        loss_of(*data[:]).backward()
        optimizer.step()
    os._exit(0)
print(os.waitpid(child, 0)[1])
for i in range(5):
    loss_of(*data[:]).backward()
    optimizer.step()
"""
        outcome = self.run_forked(source)
        self.assertEqual(outcome.code, 0, outcome.err)
        self.assertEqual(sorted(spool.header.step_count for spool in outcome.spools()), [5, 17])

    def test_a_forked_child_that_does_not_train_leaves_nothing(self):
        source = PLAIN + """
import os, sys
sys.stdout.flush()
child = os.fork()
if child == 0:
    list(torch.utils.data.DataLoader(data))
    sys.exit(3)
print(os.waitpid(child, 0)[1] >> 8)
"""
        outcome = self.run_forked(source)
        self.assertIn("\n3\n", outcome.out)
        self.assertEqual(len(outcome.spools()), 1)

    def test_a_program_that_raises_ends_with_its_own_error(self):
        outcome = self.run_forked(PLAIN + "raise KeyError('mine')\n")
        self.assertEqual(outcome.code, 1)
        self.assertIn("KeyError: 'mine'", outcome.err)
        self.assertNotIn("fullwatt:", outcome.err)
        self.assertNotIn(PACKAGE_PARENT, outcome.err)
        self.assertEqual(outcome.spool().header.step_count, 12)

    def test_a_program_that_ends_at_once_leaves_a_readable_spool(self):
        outcome = self.run_forked(PLAIN + "import os\nos._exit(5)\n")
        self.assertEqual(outcome.code, 5)
        self.assertEqual(outcome.spool().header.step_count, 12)
        self.assertNotEqual(outcome.spool().header.state, 4)


if __name__ == "__main__":
    unittest.main()
