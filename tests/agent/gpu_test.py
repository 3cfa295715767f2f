"""The agent where there is a GPU; elsewhere these tests skip themselves."""

import os
import struct
import unittest

import torch
from support import RECORDER, Case, need_recorder

from fullwatt import recorder

BEGIN = """
import sys
sys.path[:0] = %r
from fullwatt import entry
from fake_recorder import FakeRecorder
folder = sys.argv[1]
entry.begin(folder, load_recorder=lambda: FakeRecorder(folder, actions={3: %d, 6: %d, 20: %d, 25: %d}))
"""

MODEL = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8)).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
"""

TRAINING = MODEL + """
scaler = torch.cuda.amp.GradScaler() if not hasattr(torch.amp, "GradScaler") else torch.amp.GradScaler("cuda")
attention = torch.randn(2, 4, 16, 32, device="cuda", dtype=torch.float16, requires_grad=True)
for i in range(40):
    x = torch.randn(32, 64).cuda()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x).float().pow(2).mean()
        loss = loss + 0 * torch.nn.functional.scaled_dot_product_attention(attention, attention, attention).float().sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    print(loss.item())
"""


@unittest.skipUnless(torch.cuda.is_available(), "no GPU")
class GpuTest(Case):
    def run_training(self, with_agent):
        paths = [os.path.dirname(os.path.abspath(__file__)), os.path.dirname(os.path.dirname(recorder.__file__))]
        actions = (recorder.MEASURE, recorder.COUNT, recorder.MEASURE, recorder.MEASURE)
        folder = self.new_folder()
        begin = BEGIN % ((paths,) + actions) if with_agent else ""
        outcome = self.run_python(["-c", begin + TRAINING, folder], agent=False)
        outcome.folder = folder
        self.assertEqual((outcome.code, outcome.err), (0, ""))
        return outcome

    def test_losses_memory_and_operations_are_read_without_changing_the_training(self):
        watched, alone = self.run_training(True), self.run_training(False)
        self.assertEqual(watched.out, alone.out)
        printed = [float(text) for text in watched.out.split()]
        losses = [call for call in watched.calls("record") if call["kind"] == recorder.LOSS]
        self.assertEqual([call["b"] for call in losses], [4, 21, 26])
        for call in losses:
            value = struct.unpack("<d", struct.pack("<Q", call["a"]))[0]
            self.assertAlmostEqual(value, printed[call["b"] - 1], places=5)
        memory = [call for call in watched.calls("record") if call["kind"] == recorder.MEMORY]
        self.assertGreater(memory[0]["a"], 0)
        self.assertGreaterEqual(memory[0]["b"], memory[0]["a"])
        flops = watched.fact("flops")
        layers = 2 * 32 * (64 * 128 + 128 * 8)
        self.assertEqual(flops["by_op"]["addmm"], layers)
        self.assertEqual(flops["by_op"]["mm"], 2 * layers - 2 * 32 * 64 * 128)
        self.assertGreater(flops["backward"], flops["forward"])
        self.assertEqual(flops["unaligned"], [])
        self.assertEqual(sum(watched.fact("attention")["backend"].values()), 1)
        check = watched.fact("device_check")
        self.assertTrue(check["consistent"])
        self.assertRegex(check["uuid"], "^(GPU|MIG)-")
        self.assertGreater(check["allocated_bytes"], 0)
        self.assertEqual(watched.facts("gpu")[0]["name"], torch.cuda.get_device_name(0))
        self.assertGreater(watched.facts("memory")[-1]["peak_allocated_bytes"], 0)

    def test_the_users_profiler_sees_its_kernels_beside_our_windows(self):
        need_recorder()
        source = MODEL + """
def step():
    model(torch.randn(32, 64).cuda()).pow(2).mean().backward()
    optimizer.step()
import time
end = time.time() + 4
while time.time() < end:
    step()
with torch.profiler.profile() as profile:
    for i in range(5):
        step()
    torch.cuda.synchronize()
kernels = [e for e in profile.events() if str(e.device_type).endswith("CUDA")]
print(len(kernels) > 20)
"""
        script = self.write("train.py", source)
        outcome = self.run_python([script], {"FULLWATT_RECORDER": RECORDER})
        self.assertEqual((outcome.code, outcome.out), (0, "True\n"), outcome.err)
        spool = outcome.spool()
        self.assertGreater(len(spool.of_kind("kernel")), 0, [spool.texts[record.id] for record in spool.of_kind("trouble")])


if __name__ == "__main__":
    unittest.main()
