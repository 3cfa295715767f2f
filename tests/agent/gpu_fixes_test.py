"""Fixes that need a GPU; elsewhere these tests skip themselves."""

import os
import unittest

os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # asking CUDA itself here would spoil it for the children that are forked

import torch  # noqa: E402

from fixes_test import FixCase  # noqa: E402
from turns_test import TurnsCase  # noqa: E402

DATA = """
import numpy, torch
torch.manual_seed(0)
class Data(torch.utils.data.Dataset):
    def __init__(self):
        self.images = numpy.random.RandomState(0).rand(64, 8).astype("float32")
    def __len__(self):
        return len(self.images)
    def __getitem__(self, index):
        return {"x": torch.from_numpy(self.images[index]), "y": index}
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Linear(16, 1)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
"""

LOOP = """
data = Data()
for epoch in range(4):
    for batch in torch.utils.data.DataLoader(data, batch_size=6, shuffle=True, drop_last=True):
        x, y = batch["x"].to("cuda"), batch["y"].cuda().float()
        loss = ((model(x).squeeze(1) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("%.9g" % loss.item())
with torch.no_grad():
    print("%.9g" % model(torch.ones(3, 8).cuda()).sum().item(), [b.sum().item() for b in model.buffers()])
print(torch.rand(1).item())
"""

RECURRENT = """
class Recurrent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = torch.nn.LSTM(2, 16, num_layers=2, batch_first=True), torch.nn.Linear(16, 1)
    def forward(self, x):
        return self.head(self.lstm(x.view(-1, 4, 2))[0][:, -1])
model = Recurrent().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
"""


@unittest.skipUnless(torch.cuda.is_available(), "no GPU")
class OnGpu(FixCase):
    def both(self, fixes, source):
        plain, fixed = self.train([], source), self.train(fixes, source)
        self.assertEqual(fixed.out, plain.out)
        return fixed


class CacheOnGpuTest(OnGpu):
    CACHE = {"id": "sample-cache", "gigabytes": 1, "gpu_gigabytes": 1}

    def test_batches_wait_on_the_gpu_and_everything_stays_to_the_bit(self):
        fixed = self.both([self.CACHE], DATA + LOOP)
        self.assertIn("on cuda:0", self.fix(fixed, "sample-cache")["text"])

    def test_parts_that_are_used_on_the_cpu_stay_there(self):
        fixed = self.both([self.CACHE], DATA + LOOP.replace('batch["y"].cuda().float()', 'torch.from_numpy(batch["y"].numpy() + 1).cuda().float()'))
        self.assertIn("0.0 GB of them on cuda:0", self.fix(fixed, "sample-cache")["text"])

    LATE = """
        if len(seen) % 7 == 6:
            print(batch["x"].numpy().sum(), batch["y"].tolist(), batch["x"][0].mean().item(), batch["x"][1].to("cuda").sum().item())
        seen.append(1)
        loss = ("""

    def test_a_late_use_on_the_cpu_is_right(self):
        self.both([self.CACHE], "seen = []\n" + DATA + LOOP.replace("\n        loss = (", self.LATE))

    def test_batches_are_sent_ahead_where_the_samples_do_not_fit(self):
        ahead = {"id": "sample-cache", "gigabytes": 1, "gpu_gigabytes": 0, "ahead": True}
        for loop in (LOOP, LOOP.replace("\n        loss = (", self.LATE)):
            fixed = self.both([ahead], "seen = []\n" + DATA + loop)
            self.assertIn("sent ahead of their steps", self.fix(fixed, "sample-cache")["text"])

    def test_samples_that_the_data_set_puts_on_the_gpu_stay_there(self):
        """All parts of them, or some."""
        for there in ('{"x": torch.from_numpy(self.images[index]).cuda(), "y": index}', '{"x": torch.from_numpy(self.images[index]).to("cuda"), "y": torch.tensor(index).cuda()}'):
            source = DATA.replace('{"x": torch.from_numpy(self.images[index]), "y": index}', there) + LOOP
            for cache in (self.CACHE, {**self.CACHE, "ahead": True}):
                self.assert_in_force(self.both([cache], source), "sample-cache")

    def test_samples_drawn_on_the_gpu_are_refused(self):
        """And what was drawn to find that out is put back."""
        source = DATA.replace("torch.from_numpy(self.images[index])", "torch.rand(8, device='cuda')") + LOOP.replace("print(torch.rand(1)", "print(torch.rand(1, device='cuda')")
        self.assert_refused(self.both([self.CACHE], source), "sample-cache", "differ")

    def test_samples_of_many_lengths_on_the_gpu_are_refused(self):
        data = DATA.replace("torch.from_numpy(self.images[index])", "torch.from_numpy(self.images[index][:4 + index % 5]).cuda()")
        loop = LOOP.replace("batch_size=6", "batch_size=6, collate_fn=lambda rows: {'x': torch.nn.utils.rnn.pad_sequence([torch.ones(8).cuda()] + [row['x'] for row in rows], batch_first=True)[1:], "
                            "'y': torch.tensor([row['y'] for row in rows]), 'longest': max(len(row['x']) for row in rows)}")
        self.assert_refused(self.both([self.CACHE], data + loop), "sample-cache", "on the GPU that are no rows")

    def test_batches_that_are_on_the_gpu_are_not_pinned(self):
        collating = LOOP.replace("batch_size=6", "batch_size=6, collate_fn=lambda rows: {k: v.cuda() for k, v in torch.utils.data.default_collate(rows).items()}")
        on_gpu = DATA.replace("RandomState(0).rand(64, 8).astype(\"float32\")", "RandomState(0).rand(64, 8).astype(\"float32\"); self.there = torch.from_numpy(self.images).cuda()")
        on_gpu = on_gpu.replace("torch.from_numpy(self.images[index])", "self.there[index]")
        for source in (DATA + collating, on_gpu + LOOP):
            self.assert_refused(self.both(["loader-pinned"], source), "loader-pinned", "on the GPU already")

    def test_a_row_of_a_batch_is_sent(self):
        whole = LOOP.replace("batch_size=6", "batch_size=1").replace("Data()", "Wholes()").replace('batch["x"].to', 'batch["x"][0].to').replace('batch["y"].cuda()', 'batch["y"][0].cuda()')
        wholes = """
class Wholes(Data):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return {"x": torch.from_numpy(self.images[8 * index:8 * index + 8]), "y": torch.arange(8 * index, 8 * index + 8)}
"""
        fixed = self.both([self.CACHE], DATA + wholes + whole)
        self.assertIn("on cuda:0", self.fix(fixed, "sample-cache")["text"])

    def test_samples_that_the_program_puts_together(self):
        """Those of the CPU, and of the GPU where it is a function of the program's that sends them there."""
        data = DATA.replace("torch.from_numpy(self.images[index])", "torch.from_numpy(self.images[index][:4 + index % 5])")
        padding = """
def pad(rows):
    longest = max(map(len, (row["x"] for row in rows)))
    x = torch.stack([torch.nn.functional.pad(row["x"], (0, longest - len(row["x"]))) for row in rows])%s
    return {"x": torch.nn.functional.pad(x, (0, 8 - longest)), "y": torch.tensor([row["y"] for row in rows]), "longest": longest}
"""
        for there in ("", ".cuda()"):
            for more in ("", ", pin_memory=True") if not there else ("",):
                loop = LOOP.replace("batch_size=6", "batch_size=6, collate_fn=pad" + more).replace("        optimizer.zero_grad()", "        print(batch['longest'], batch['x'].is_pinned())\n        optimizer.zero_grad()")
                fixed = self.both([{**self.CACHE, "ahead": True}], data + padding % there + loop)
                self.assertIn("put together by the loader's own function", self.fix(fixed, "sample-cache")["text"])


class BackwardTest(OnGpu):
    def test_it_runs_in_the_calling_thread(self):
        looking = LOOP.replace("        loss.backward()", "        loss.register_hook(lambda _: threads.add(threading.get_ident()))\n        loss.backward()")
        looking = DATA + "import threading\nthreads = set()\n" + looking
        self.assert_in_force(self.both(["backward-inline"], looking), "backward-inline")
        looking += "print(threads == {threading.get_ident()})\n"
        self.assertEqual([self.train(fixes, looking).out.split("\n")[-2] for fixes in ([], ["backward-inline"])], ["False", "True"])

    def test_with_graphs_of_a_recurrent_model(self):
        fixes = ["backward-inline", "cuda-graphs", "fused-optimizer"]
        plain, fixed = self.train(fixes[2:], DATA + RECURRENT + LOOP), self.train(fixes, DATA + RECURRENT + LOOP)
        for name in fixes:
            self.assert_in_force(fixed, name)
        self.assertEqual(fixed.out, plain.out)


class GraphsTest(OnGpu):
    def test_losses_buffers_and_random_numbers_stay(self):
        self.assert_in_force(self.both(["cuda-graphs"], DATA + LOOP), "cuda-graphs")

    def test_a_recurrent_model_learns_what_it_learned(self):
        self.assert_in_force(self.both(["cuda-graphs"], DATA + RECURRENT + LOOP), "cuda-graphs")

    def test_gradients_in_one_piece_are_clipped_in_one(self):
        """With other rounding: the norm is summed in another order."""
        clips = LOOP.replace("optimizer.zero_grad()", "optimizer.zero_grad(set_to_none=False)")
        clips = clips.replace("        optimizer.step()", "        torch.nn.utils.clip_grad_norm_(model.parameters(), 10)\n        optimizer.step()")
        plain, fixed = (self.train(fixes, DATA + RECURRENT + clips) for fixes in ([], ["cuda-graphs", "gradients-to-none"]))
        for name in ("cuda-graphs", "gradients-to-none"):
            self.assert_in_force(fixed, name)
        losses = [[float(line) for line in outcome.out.split("\n")[:40]] for outcome in (plain, fixed)]
        for loss, own in zip(*losses):
            self.assertAlmostEqual(loss / own, 1, places=4)

    def test_gradients_add_up(self):
        accumulating = LOOP.replace("        optimizer.zero_grad()\n", "").replace("        optimizer.step()\n", "        if y.sum() % 2 == 0:\n            optimizer.step(); optimizer.zero_grad()\n")
        self.assert_in_force(self.both(["cuda-graphs"], DATA + accumulating), "cuda-graphs")

    def test_two_passes_before_one_backward_are_right(self):
        twice = LOOP.replace("loss = ((model(x).squeeze(1) - y) ** 2).mean()", "loss = ((model(x).squeeze(1) - y) ** 2).mean() + model(x * 0.5).pow(2).mean()")
        self.assert_in_force(self.both(["cuda-graphs"], DATA + twice), "cuda-graphs")

    def test_a_capture_between_passes_that_wait_for_their_gradients(self):
        """The third call of a step is captured; those before it have kept the buffers of the model."""
        thrice = LOOP.replace(" ** 2).mean()\n", " ** 2).mean() + model(x * 0.5).pow(2).mean() + model(x * 0.2).pow(2).mean()\n")
        self.assert_in_force(self.both(["cuda-graphs"], DATA + thrice), "cuda-graphs")

    def test_outputs_that_are_kept_stay_as_they_were(self):
        keeping = LOOP.replace("loss = ((model(x)", "kept.append(model(x).detach()); loss = ((model(x)") + "print([k.sum().item() for k in kept])\n"
        self.both(["cuda-graphs"], "kept = []\n" + DATA + keeping)

    def test_other_shapes_and_evaluation_run_as_they_are(self):
        self.assert_in_force(self.both(["cuda-graphs"], DATA + LOOP.replace(", drop_last=True", "")), "cuda-graphs")

    def test_weights_that_autocast_has_cast_follow_the_training(self):
        """Also where the program uses them itself, after the graph, in the same context."""
        casts = LOOP.replace("        loss = ((model(x).squeeze(1) - y) ** 2).mean()\n", """
        with torch.autocast("cuda", torch.bfloat16):
            loss = ((model(x).squeeze(1) - y) ** 2).mean()
            with torch.no_grad():
                print("%.9g" % model[3](model[0](x)).float().sum().item())
""")
        self.assert_in_force(self.both(["cuda-graphs"], DATA + casts), "cuda-graphs")

    def test_dropout_draws_what_it_drew(self):
        self.assert_in_force(self.both(["cuda-graphs"], DATA.replace("torch.nn.ReLU()", "torch.nn.Dropout(0.5)") + LOOP), "cuda-graphs")

    def test_a_compiled_model_is_compiled_no_more_often(self):
        others = ["bf16", {"id": "compile", "backend": "eager"}]
        compiled, fixed = (self.train(fixes, DATA + LOOP).facts("compile_stats")[-1] for fixes in (others, ["cuda-graphs", *others]))
        self.assertEqual(fixed["recompiles"], compiled["recompiles"])

    def test_an_attribute_that_the_program_sets_ends_it(self):
        drops = DATA.replace("torch.nn.ReLU()", "torch.nn.ELU(1.0)") + LOOP.replace("for epoch in range(4):\n", "for epoch in range(4):\n    model[2].alpha = 1.0 + epoch\n")
        fixed = self.both(["cuda-graphs"], drops)
        self.assertEqual(self.fix(fixed, "cuda-graphs")["state"], "undone")

    def test_models_that_do_more_than_computing_are_refused(self):
        counting = DATA + """
class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.calls = model, 0
    def forward(self, x):
        self.calls += 1
        return self.inner(x)
model = Counting()
"""
        self.assert_refused(self.both(["cuda-graphs"], counting + LOOP), "cuda-graphs", "in Python")
        drawing = counting.replace("self.calls += 1", "x = x * (1 + 0.1 * torch.rand(1).item())")
        self.assert_refused(self.both(["cuda-graphs"], drawing + LOOP), "cuda-graphs", "")
        self.assert_refused(self.both(["cuda-graphs"], DATA + "model[0].register_forward_hook(lambda *a: None)\n" + LOOP), "cuda-graphs", "hooks")

    def test_dropout_between_recurrent_layers(self):
        """cuDNN draws from memory of its own, which it makes anew when the program seeds: then another capture is made."""
        recurrent = RECURRENT.replace("batch_first=True", "batch_first=True, dropout=0.2")
        for loop in (LOOP, LOOP.replace("for epoch in range(4):\n", "for epoch in range(4):\n    torch.manual_seed(epoch)\n").replace(", drop_last=True", "")):
            plain, fixed = self.train([], DATA + recurrent + loop), self.train(["cuda-graphs"], DATA + recurrent + loop)
            self.assert_in_force(fixed, "cuda-graphs")
            losses = [[float(line) for line in run.out.split("\n")[:-3]] for run in (plain, fixed)]
            self.assertEqual(losses[0][:2], losses[1][:2])
            self.assertLess(abs(sum(losses[1]) / sum(losses[0]) - 1), 0.1)

    def of_net(self, before, result, setup="", loop=LOOP):
        """A program whose model does something beside computing."""
        net = """
class Cache:
    last = 0.0
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = model
        %s
    def forward(self, x):
        %s
        return %s
model = Net().cuda()
""" % (setup or "pass", before, result)
        return DATA + net + loop

    def test_tensors_that_a_pass_leaves_in_attributes_are_given_anew(self):
        """With their gradients, and each its own memory."""
        adds = LOOP.replace(" ** 2).mean()\n", " ** 2).mean() + model.extra\n        seen.append(model.shown)\n        assert model.extra.requires_grad\n")
        source = self.of_net("self.shown = self.inner[0](x); self.extra = self.shown.pow(2).mean()", "self.inner(x)", loop=adds)
        source = "seen = []\n" + source + "print([tensor.sum().item() for tensor in seen])\n"
        self.assert_in_force(self.both(["cuda-graphs"], source), "cuda-graphs")
        resets = source.replace("        optimizer.step()", "        model.extra = None\n        optimizer.step()")
        self.assert_in_force(self.both(["cuda-graphs"], resets), "cuda-graphs")
        several = source.replace("self.extra = self.shown.pow(2).mean()", "self.cache.last = [self.shown.pow(2).mean(), self.shown.mean()]").replace("model.extra", "sum(model.cache.last)")
        several = several.replace("self.inner = model", "self.inner, self.cache = model, Cache()")
        self.assert_in_force(self.both(["cuda-graphs"], several), "cuda-graphs")

    def test_calls_by_name_with_containers_and_plain_values(self):
        source = self.of_net("pass", "{'out': self.inner(x) * scale + parts[0][1], 'none': None, 'scale': scale}").replace("def forward(self, x)", "def forward(self, x, parts=(), scale=1.0)")
        source = source.replace("model(x)", "model(x, scale=0.5, parts=[(None, x.mean())])['out']").replace("model(torch.ones(3, 8).cuda())", "model(torch.ones(3, 8).cuda(), [(0, 0)])['out']")
        self.assert_in_force(self.both(["cuda-graphs"], source), "cuda-graphs")
        odd = self.of_net("pass", "self.inner(x) * factor.item()").replace("def forward(self, x)", "def forward(self, x, factor=torch.ones(()))").replace("model(x)", "model(x, torch.ones(()))")
        self.assert_refused(self.both(["cuda-graphs"], odd), "cuda-graphs", "called with something else")

    def test_what_a_pass_hands_to_the_next_is_refused(self):
        for before, result, setup, why in (("out = 0.5 * self.kept + self.inner(x); self.kept = out.detach().mean()", "out", "self.kept = torch.zeros(()).cuda()", "goes on from"),
                                           ("out = self.inner(x) + self.kept[0]; self.kept = (0.1 * out.detach().mean(),)", "out", "self.kept = (torch.zeros(()).cuda(),)", "goes on from"),
                                           ("out = self.inner(x) + self.cache.last; self.cache.last = 0.1 * out.detach().mean()", "out", "self.cache = Cache()", "goes on from"),
                                           ("out = self.inner(x); self.mean = 0.9 * self.mean + 0.1 * out.detach().mean()", "out + self.mean", "self.register_buffer('mean', torch.zeros(()))", "place of its buffers"),
                                           ("out = self.inner(x); self.all.append(out.mean())", "out", "self.all = []", "in Python")):
            self.assert_refused(self.both(["cuda-graphs"], self.of_net(before, result, setup)), "cuda-graphs", why)

    def test_tensors_that_a_pass_changes_in_place(self):
        """A graph does so, too, and the passes before the capture leave no trace."""
        source = self.of_net("self.kept.mul_(0.9).add_(0.1 * x.mean())", "self.inner(x) + self.kept", "self.kept = torch.zeros(1, device='cuda')")
        self.assert_in_force(self.both(["cuda-graphs"], source + "print(model.kept.item())\n"), "cuda-graphs")

    def test_inputs_that_are_changed_are_refused(self):
        source = self.of_net("x -= 0.5", "self.inner(x)", loop=LOOP.replace("- y)", "- x.sum(1))"))
        self.assert_refused(self.both(["cuda-graphs"], source), "cuda-graphs", "changes its inputs")

    def test_a_tensor_that_the_program_puts_in_place_of_another_ends_it(self):
        for setup, change in (("self.scale = torch.ones(()).cuda()", "model.scale = torch.tensor(2.0 + epoch).cuda()"),
                              ("self.register_buffer('scale', torch.ones(()))", "model.register_buffer('scale', torch.tensor(2.0 + epoch).cuda())")):
            source = self.of_net("pass", "self.inner(x) * self.scale", setup, LOOP.replace("for epoch in range(4):\n", "for epoch in range(4):\n    %s\n" % change))
            self.assertEqual(self.fix(self.both(["cuda-graphs"], source), "cuda-graphs")["state"], "undone")

    OFTEN = "from fullwatt.fixes import graphs\ngraphs.AUDIT_EVERY = 1\n"

    def test_what_no_graph_sees_is_found_by_audits(self):
        source = self.of_net("pass", "self.inner(x) * setting['scale']", loop=LOOP.replace("for epoch in range(4):\n", "for epoch in range(4):\n    setting['scale'] = 1.0 + epoch\n"))
        fixed = self.both(["cuda-graphs"], self.OFTEN + "setting = {}\n" + source)
        self.assertEqual(self.fix(fixed, "cuda-graphs")["state"], "undone")
        self.assertIn("no graph sees", self.fix(fixed, "cuda-graphs")["text"])

    def test_audits_change_nothing(self):
        source = self.OFTEN + DATA.replace("torch.nn.ReLU()", "torch.nn.Dropout(0.5)") + LOOP
        self.assert_in_force(self.both(["cuda-graphs"], source), "cuda-graphs")
        compiled = ["bf16", "compile"]
        plain, fixed = self.train(compiled, source), self.train(["cuda-graphs", *compiled], source)
        self.assert_in_force(fixed, "cuda-graphs")
        self.assertEqual(fixed.out, plain.out)

    def test_with_the_other_fixes_of_a_model(self):
        others = ["bf16", "fused-optimizer", {"id": "sample-cache", "gigabytes": 1, "gpu_gigabytes": 1}]
        without, fixed = self.train(others, DATA + LOOP), self.train(["cuda-graphs", *others], DATA + LOOP)
        for name in ("bf16", "cuda-graphs", "fused-optimizer", "sample-cache"):
            self.assert_in_force(fixed, name)
        self.assertEqual(fixed.out, without.out)


@unittest.skipUnless(torch.cuda.is_available(), "no GPU")
class TurnsOnGpuTest(TurnsCase):
    def test_graphs_and_what_is_inside_of_them_take_turns(self):
        source = DATA + LOOP.replace("range(4)", "range(400)")
        outcome, told = self.turns([{"id": "cuda-graphs"}, {"id": "compile", "backend": "eager"}], source)
        self.assertEqual({fix: fact["state"] for fix, fact in told.items()}, {"cuda-graphs": "measured", "compile": "measured"})
        losses = outcome.out.split()
        self.assertGreater(len(losses), 40)
        self.assertEqual(losses, self.run_forked(source).out.split()[:len(losses)])


if __name__ == "__main__":
    unittest.main()
