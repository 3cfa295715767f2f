"""What the recorder asks for is done, and nothing of ours reaches the training when it fails; with a recorder that only remembers."""

import os
import struct
import unittest

import torch
import torch._dynamo  # every optimiser imports it: once here instead of in each child
from support import MODEL, Case

from fullwatt import recorder

LOOP = MODEL + """
import time
def wait_here():
    time.sleep(0.004)
for epoch in range(10):
    for x, y in torch.utils.data.DataLoader(data, batch_size=16):
        loss = loss_of(x, y)
        optimizer.zero_grad()
        loss.backward()
        wait_here()
        optimizer.step()
"""


class WindowsTest(Case):
    def test_a_window_of_causes_samples_the_line_and_closes(self):
        outcome = self.run_forked(LOOP, fake={"actions": {12: recorder.OPEN_CAUSES, 30: recorder.CLOSE}})
        self.assertEqual((outcome.code, outcome.err), (0, ""))
        names = [call["call"] for call in outcome.calls() if call["call"] in ("window_open", "window_close", "sample")]
        self.assertEqual((names[0], names[-1]), ("window_open", "window_close"))
        stacks = [call["stack"].split("\n") for call in outcome.calls("sample")]
        script, line = os.path.join(self.scratch, "script.py"), self.line_of(LOOP, "time.sleep(0.004)")
        at_sleep = [stack for stack in stacks if stack[0] == "%s:%d:wait_here" % (script, line)]
        self.assertGreater(len(at_sleep), 0)
        for stack in stacks:
            self.assertTrue(any(line.startswith(script + ":") for line in stack), stack)

    def test_the_first_step_of_a_window_names_the_places_of_its_phases(self):
        script = os.path.join(self.scratch, "script.py")
        where = {recorder.BACKWARD: "loss.backward()", recorder.DATA: "for x, y in torch"}
        for opening in (recorder.OPEN_CAUSES, recorder.OPEN_TIMES):
            with self.subTest(opening=opening):
                outcome = self.run_forked(LOOP, fake={"actions": {12: opening, 15: recorder.CLOSE}})
                for phase, text in where.items():
                    named = [call["site"] for call in outcome.calls("phase") if call["phase"] == phase and call["site"]]
                    self.assertEqual(set(named), {"%s:%d:<module>" % (script, self.line_of(LOOP, text))})
                    self.assertLessEqual(len(named), 3)  # the first step begins an epoch
                steps = outcome.calls("step")
                self.assertEqual([step["number"] for step in steps if step["site"]], [13])
                self.assertIn(":%d:" % self.line_of(LOOP, "optimizer.step()"), steps[12]["site"])

    def test_every_optimiser_names_its_places(self):
        two = LOOP.replace("        optimizer.step()\n", "        optimizer.step()\n        second.step()\n").replace("\nfor ", "\nsecond = torch.optim.SGD(model.parameters(), lr=0.0)\nfor ", 1)
        outcome = self.run_forked(two, fake={"actions": {20: recorder.OPEN_CAUSES, 28: recorder.CLOSE}})
        lines = [step["site"].split(":")[1] for step in outcome.calls("step") if step["site"]]
        self.assertEqual(sorted(lines), sorted(str(self.line_of(two, text)) for text in ("        optimizer.step()", "        second.step()")))

    def test_saving_inside_a_window_names_its_place(self):
        saving = LOOP.replace("        optimizer.step()\n", "        optimizer.step()\n        import io; torch.save(1, io.BytesIO())\n")
        outcome = self.run_forked(saving, fake={"actions": {12: recorder.OPEN_CAUSES, 18: recorder.CLOSE}})
        named = [call["site"] for call in outcome.calls("phase") if call["phase"] == recorder.SAVE and call["site"]]
        self.assertGreaterEqual(len(named), 5)

    def test_a_window_of_times_takes_no_samples(self):
        outcome = self.run_forked(LOOP, fake={"actions": {12: recorder.OPEN_TIMES, 15: recorder.CLOSE}})
        self.assertEqual(outcome.calls("sample"), [])

    def test_the_switch_interval_is_lowered_in_the_window_and_restored(self):
        source = "import sys\nbefore = sys.getswitchinterval()\n" + LOOP.replace(
            "        wait_here()", "        wait_here(); print(sys.getswitchinterval() < before)"
        )
        outcome = self.run_forked(source, fake={"actions": {12: recorder.OPEN_CAUSES, 14: recorder.CLOSE}})
        self.assertEqual(outcome.out, "False\n" * 12 + "True\n" * 2 + "False\n" * 26)

    def test_a_window_that_is_open_at_the_end_is_closed(self):
        outcome = self.run_forked(LOOP, fake={"actions": {12: recorder.OPEN_CAUSES}})
        self.assertEqual(outcome.code, 0, outcome.err)
        self.assertEqual([call["call"] for call in outcome.calls()][-2:], ["window_close", "close"])


class MeasureTest(Case):
    def test_the_loss_of_the_next_backward_is_kept(self):
        source = LOOP.replace("        wait_here()", "        print(loss.item().hex())")
        outcome = self.run_forked(source, fake={"actions": {3: recorder.MEASURE, 20: recorder.MEASURE}})
        losses = [call for call in outcome.calls("record") if call["kind"] == recorder.LOSS]
        values = [struct.unpack("<d", struct.pack("<Q", call["a"]))[0].hex() for call in losses]
        printed = outcome.out.split()
        self.assertEqual([call["b"] for call in losses], [4, 21])
        self.assertEqual(values, [printed[3], printed[20]])

    def test_operations_of_one_step_are_counted_as_torch_counts_them(self):
        source = MODEL + """
from torch.utils.flop_counter import FlopCounterMode
def step():
    x, y = data[:]
    loss_of(x, y).backward()
    optimizer.step()
for i in range(8):
    step()
with FlopCounterMode(display=False) as counter:
    step()
print(counter.get_total_flops())
"""
        outcome = self.run_forked(source, fake={"actions": {5: recorder.COUNT}})
        self.assertEqual((outcome.code, outcome.err), (0, ""))
        fact = outcome.fact("flops")
        self.assertEqual((fact["total"], fact["step"]), (int(outcome.out), 6))
        self.assertEqual(fact["forward"] + fact["backward"], fact["total"])
        self.assertEqual(fact["by_dtype"], {"float32": fact["total"]})
        self.assertEqual(outcome.calls("flag")[0]["flag"], recorder.COUNTING)

    def test_bytes_are_those_of_the_tensors_that_are_read_and_written(self):
        source = MODEL + """
a, b = torch.randn(1000, 1000), torch.randn(1000, 1000)
for i in range(8):
    x, y = data[:]
    loss_of(x, y).backward()
    if i == 5 and EXTRA:
        torch.empty(1000, 1000)  # nothing moves
        a.t()[:5]  # nothing moves
        a + b  # two are read, one is written
        a.add_(b)  # two are read, one is written
        torch._foreach_mul_([a, b], 1.0)  # two are read, two are written
    optimizer.step()
"""
        sums, operations = [], []
        for extra in ("False", "True"):
            outcome = self.run_forked(source.replace("EXTRA", extra), fake={"actions": {5: recorder.COUNT}})
            self.assertEqual((outcome.code, outcome.err), (0, ""))
            sums.append(outcome.fact("flops")["bytes"]["cpu"])
            operations.append(outcome.fact("flops")["operations"])
        self.assertGreater(sums[0], 0)
        self.assertEqual(sums[1] - sums[0], 10 * 4_000_000)
        self.assertEqual(operations[1] - operations[0], 6)  # a.t()[:5] is two

    def test_counting_leaves_the_losses_as_they_are(self):
        source = LOOP.replace("        wait_here()", "        print(loss.item().hex())")
        counted = self.run_forked(source, fake={"actions": {5: recorder.COUNT}})
        self.assertEqual(counted.fact("flops")["step"], 6)
        self.assertEqual(counted.out, self.run_forked(source, agent=False).out)

    def test_attention_backends_are_told(self):
        source = MODEL + """
q = torch.randn(2, 2, 8, 16, requires_grad=True)
for i in range(8):
    out = torch.nn.functional.scaled_dot_product_attention(q, q, q)
    loss = out.sum() + loss_of(*data[:])
    loss.backward()
    optimizer.step()
"""
        outcome = self.run_forked(source, fake={"actions": {5: recorder.COUNT}})
        self.assertEqual((outcome.code, outcome.err), (0, ""))
        backends = outcome.fact("attention")["backend"]
        self.assertEqual(sum(backends.values()), 1)
        self.assertLessEqual(set(backends), {"flash", "math"})


class EndTest(Case):
    def test_stop_ends_the_program_in_order(self):
        source = "import atexit\natexit.register(lambda: print('bye'))\n" + LOOP + "print('not reached')\n"
        outcome = self.run_forked(source, fake={"actions": {7: recorder.STOP}})
        self.assertEqual((outcome.code, outcome.out, outcome.err), (0, "bye\n", ""))
        self.assertEqual(len(outcome.calls("step")), 7)

    def test_enough_of_long_steps_ends_a_program_that_no_other_waits_for(self):
        asked = {"actions": {7: recorder.ENOUGH, 9: recorder.STOP}}
        self.assertEqual(len(self.run_forked(LOOP, fake=asked).calls("step")), 7)
        several = "import torch.distributed as group\ngroup.is_initialized, group.get_world_size, group.get_rank = lambda: True, lambda: 2, lambda: 0\n"
        outcome = self.run_forked(LOOP.replace("for epoch", several + "for epoch"), fake=asked)
        self.assertEqual((outcome.code, outcome.err, len(outcome.calls("step"))), (0, "", 9))

    def test_the_ceiling_gives_the_same_batches_for_ever(self):
        source = MODEL + """
steps = 0
for batch in torch.utils.data.DataLoader([{"x": x, "y": y} for x, y in data], batch_size=16):
    x, y = batch.pop("x"), batch.pop("y")
    loss_of(x, y).backward()
    optimizer.step()
    steps += 1
    print(x.sum().item())
"""
        outcome = self.run_forked(source, fake={"actions": {2: recorder.CEILING, 30: recorder.STOP}})
        self.assertEqual((outcome.code, outcome.err), (0, ""))
        sums = outcome.out.split()
        self.assertEqual(len(sums), 29)
        self.assertLessEqual(set(sums[2:]), set(sums[2:4]))  # how many they are is up to the clock: units_test

    def test_an_evaluation_that_nobody_recognises_ends_in_the_ceiling_too(self):
        source = LOOP + """
    with torch.no_grad():  # without model.eval()
        print(epoch, sum(len(x) for x, y in torch.utils.data.DataLoader(data, batch_size=16)) >= len(data), flush=True)
"""
        outcome = self.run_forked(source, fake={"actions": {4: recorder.CEILING, 9: recorder.STOP}})  # with the last batch of an epoch
        self.assertEqual((outcome.code, outcome.out, outcome.err), (0, "0 True\n", ""))
        self.assertEqual(len(outcome.calls("step")), 9)

    def test_what_a_program_writes_into_the_batch_of_the_ceiling_it_does_not_get_again(self):
        source = MODEL + """
import collections
Pair = collections.namedtuple("Pair", "x y")
class Held(dict):
    pass
def collate(samples):
    xs, ys = (torch.stack(values) for values in zip(*samples))
    return SHAPE
for batch in torch.utils.data.DataLoader(data, batch_size=16, collate_fn=collate):
    x, y = READ
    print(type(batch).__name__, x.sum().item())
    x += 1
    loss_of(x, y).backward()
    optimizer.step()
"""
        for shape, read in (
            ("[xs, ys]", "batch"),
            ("Pair(xs, ys)", "batch"),
            ("Held(in_it=(xs, [ys]))", "batch['in_it'][0], batch['in_it'][1][0]"),
        ):
            with self.subTest(shape=shape):
                outcome = self.run_forked(source.replace("SHAPE", shape).replace("READ", read), fake={"actions": {2: recorder.CEILING, 9: recorder.STOP}})
                self.assertEqual((outcome.code, outcome.err), (0, ""))
                lines = outcome.out.splitlines()
                self.assertEqual(len(lines), 9)
                self.assertLessEqual(set(lines[2:]), set(lines[2:4]))

    def test_a_batch_that_cannot_be_copied_is_given_as_it_is(self):
        source = MODEL + """
class Odd(dict):
    def __copy__(self):
        raise RuntimeError("not this one")
for batch in torch.utils.data.DataLoader(data, batch_size=16, collate_fn=lambda rows: Odd(x=torch.stack([x for x, _ in rows]), y=torch.stack([y for _, y in rows]))):
    loss_of(batch["x"], batch["y"]).backward()
    optimizer.step()
    print(id(batch))
"""
        outcome = self.run_forked(source, fake={"actions": {2: recorder.CEILING, 9: recorder.STOP}})
        self.assertEqual((outcome.code, outcome.err), (0, ""))
        ids = outcome.out.split()
        self.assertEqual(len(ids), 8)
        self.assertLessEqual(set(ids[2:]), set(ids[2:4]))

    def test_an_error_of_ours_turns_the_agent_off_and_the_training_goes_on(self):
        source = LOOP.replace("        wait_here()", "        print(loss.item().hex())")
        expected = self.run_forked(source, agent=False).out
        for place in ("phase", "step", "samples", "open", "window_open", "cost"):
            with self.subTest(place=place):
                outcome = self.run_forked(source, fake={"fail_at": place, "actions": {12: recorder.OPEN_TIMES}})
                self.assertEqual((outcome.code, outcome.out), (0, expected))
                self.assertEqual(outcome.err.count("\n"), 1, outcome.err)
                self.assertRegex(outcome.err, "^fullwatt: the agent turned itself off: .*planted in %s.*; the training goes on" % place)

    def test_turning_off_restores_everything(self):
        source = """
import torch, builtins, gc, io, sys
from torch.utils.data import dataloader, _utils
def seen():
    profiler = torch.autograd.profiler
    hooks = sys.modules["torch.optim.optimizer"]
    return [torch.autograd.backward, torch.save, torch.compile, torch.nn.Module.__call__, torch.nn.Module.eval, torch.nn.Module.train,
            dataloader.DataLoader.__init__, dataloader._BaseDataLoaderIter.__next__, dataloader._BaseDataLoaderIter.__init__,
            _utils.fetch._MapDatasetFetcher.fetch, _utils.fetch._IterableDatasetFetcher.fetch, torch.amp.autocast_mode.autocast.__enter__,
            torch.nn.parallel.DistributedDataParallel.__init__, torch.nn.parallel.DataParallel.__init__,
            profiler.profile.__exit__, profiler.record_function.__enter__, torch.optim.Optimizer.__init__,
            torch.nn.functional.scaled_dot_product_attention, torch.cuda.graphs.CUDAGraph.capture_begin, builtins.open, io.open,
            len(gc.callbacks), len(hooks._global_optimizer_pre_hooks), len(hooks._global_optimizer_post_hooks), len(sys.meta_path),
            sys.getswitchinterval()]
before = seen()
from fullwatt import entry
from fake_recorder import FakeRecorder
agent = entry.begin(sys.argv[1], load_recorder=lambda: FakeRecorder(sys.argv[1], actions={5: 32, 8: 2}))
during = seen()
print(sum(a is not b and a != b for a, b in zip(before, during)) > 15)
""" + LOOP.replace("range(10)", "range(3)") + """
agent.fail(RuntimeError("now"))
print([i for i, (a, b) in enumerate(zip(before, seen())) if a is not b and a != b])
"""
        outcome = self.run_forked(source, arguments=[self.new_folder()], agent=False)
        self.assertEqual((outcome.code, outcome.out), (0, "True\n[]\n"), outcome.err)


class OddObjectsTest(Case):
    def test_objects_that_cannot_be_described_stay_unknown_and_the_recording_goes_on(self):
        source = MODEL + """
class Odd(torch.nn.Module):
    __hash__ = None
    def __init__(self):
        super().__init__()
        self.inner = model
    def __eq__(self, other):
        raise TypeError("never compare me")
    def parameters(self, recurse=True):
        raise OSError("no parameters")
    def forward(self, x):
        return self.inner(x)
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, i):
        return data[i]
odd = Odd()
for epoch in range(4):
    for x, y in torch.utils.data.DataLoader(Data(), batch_size=16):
        (odd(x) - y).pow(2).mean().backward()
        optimizer.step()
    odd.eval()
    odd.train()
print("done")
"""
        alone = self.run_forked(source, agent=False)
        outcome = self.run_forked(source, fake={})
        self.assertEqual((alone.code, alone.out), (0, "done\n"), alone.err)
        self.assertEqual((outcome.code, outcome.out, outcome.err), (0, "done\n", ""))
        self.assertEqual(len(outcome.calls("step")), 16)
        troubles = [call["text"] for call in outcome.calls("record") if call["kind"] == recorder.TROUBLE]
        self.assertTrue(any("no parameters" in text for text in troubles), troubles)


class BetweenStepsTest(Case):
    def test_evaluation_is_a_span_of_its_own_and_its_batches_are_no_data_wait(self):
        source = MODEL + """
import time
loader = torch.utils.data.DataLoader(data, batch_size=16)
for epoch in range(3):
    model.train()
    for x, y in loader:
        loss_of(x, y).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        for x, y in loader:
            loss_of(x, y)
        time.sleep(0.03)
    model.train()
    time.sleep(0.05)
"""
        outcome = self.run_forked(source, fake={})
        self.assertEqual((outcome.code, outcome.err), (0, ""))
        phases = outcome.calls("phase")
        evaluations = [call["at_ns"] - call["start"] for call in phases if call["phase"] == recorder.EVALUATION]
        self.assertEqual(len(evaluations), 3)
        for duration in evaluations:
            self.assertGreater(duration, 30_000_000)
        waits = sum(call["phase"] == recorder.DATA for call in phases)
        self.assertTrue(12 <= waits <= 12 + 2 * 3, waits)  # four batches in three epochs, and the epochs' begins and ends
        self.assertIn({"flag": recorder.EVALUATED}, [{"flag": call["flag"]} for call in outcome.calls("flag")])

    def test_a_loader_that_is_begun_for_each_batch_is_counted_and_ending_its_workers_is_waiting(self):
        source = MODEL + """
loader = torch.utils.data.DataLoader(data, batch_size=8, num_workers=1)
for step in range(18):
    x, y = next(iter(loader))
    loss_of(x, y).backward()
    optimizer.step()
whole = torch.utils.data.DataLoader(data, batch_size=8)
for epoch in range(9):
    for x, y in whole:
        pass
"""
        outcome = self.run_forked(source, fake={})
        counts = [(fact["loader"], fact["begun"], fact["ended"]) for fact in outcome.facts("iterators")]
        self.assertEqual(counts, [(0, 8, 0), (0, 16, 0), (1, 8, 7)])
        waits = [call["at_ns"] - call["start"] for call in outcome.calls("phase") if call["phase"] == recorder.DATA]
        self.assertGreaterEqual(len(waits), 3)  # begun, a batch, and the workers' end

    def test_a_frozen_part_that_is_set_to_eval_is_no_evaluation(self):
        source = MODEL + """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.frozen, self.head = torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)
    def train(self, mode=True):
        super().train(mode)
        self.frozen.eval()
        return self
    def forward(self, x):
        return self.head(self.frozen(x))
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(14):
    model.train()
    model.frozen.eval()
    loss_of(*data[:]).backward()
    optimizer.step()
"""
        outcome = self.run_forked(source, fake={})
        self.assertEqual((outcome.code, outcome.err), (0, ""))
        self.assertEqual([call for call in outcome.calls("phase") if call["phase"] == recorder.EVALUATION], [])

    def test_saving_and_full_collections_are_spans(self):
        source = LOOP.replace("range(10)", "range(4)") + """
import gc
gc.collect()
torch.save(model.state_dict(), "model.pt")
"""
        outcome = self.run_forked(source, fake={})
        phases = {call["phase"] for call in outcome.calls("phase")}
        self.assertIn(recorder.SAVE, phases)
        self.assertIn(recorder.GARBAGE, phases)
        fact = outcome.fact("save")
        self.assertEqual(fact["site"]["line"], self.line_of(source, "torch.save"))
        self.assertEqual(fact["bytes"], os.path.getsize(os.path.join(self.scratch, "model.pt")))

    def test_the_users_own_profiler_gets_the_seat(self):
        source = LOOP.replace("range(10)", "range(4)") + """
with torch.profiler.profile() as profile:
    loss_of(*data[:]).backward()
print(len(profile.events()) > 0)
"""
        outcome = self.run_forked(source, fake={"actions": {12: recorder.OPEN_TIMES}})
        self.assertEqual((outcome.code, outcome.out), (0, "True\n"), outcome.err)
        self.assertEqual([(call["yes"], call["to_whom"]) for call in outcome.calls("give_way")],
                         [(True, "torch.profiler"), (False, "torch.profiler")])
        self.assertEqual([fact["state"] for fact in outcome.facts("profiler")], ["start", "stop"])
        self.assertEqual(outcome.facts("profiler")[0]["site"]["line"], self.line_of(source, "with torch.profiler"))

    def test_a_profiler_with_a_schedule_holds_the_seat_only_while_it_records(self):
        source = LOOP.replace("range(10)", "range(4)").replace("import time", """import time
profile = torch.profiler.profile(schedule=torch.profiler.schedule(wait=5, warmup=1, active=2, repeat=1))
profile.start()""").replace("        wait_here()", "        profile.step()")
        outcome = self.run_forked(source, fake={})
        self.assertEqual(outcome.code, 0, outcome.err)
        seats = [call["yes"] for call in outcome.calls("give_way")]
        self.assertEqual(seats, [True, False])
        at = {call["at_ns"]: call["call"] for call in outcome.calls() if call["call"] in ("give_way", "step")}
        order = [at[time] for time in sorted(at)]
        self.assertEqual(order.index("give_way"), 4)


if __name__ == "__main__":
    unittest.main()
