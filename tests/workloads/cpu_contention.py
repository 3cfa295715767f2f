"""Other programs take the processors: three busy processes for each of them, which end with the training."""

import os
import subprocess
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from common import Meter

BURN = """
import os, sys, time
end, trainer = time.monotonic() + float(sys.argv[1]), sys.argv[2]
while time.monotonic() < end and os.path.exists("/proc/" + trainer):
    sum(range(200_000))
"""
LAUNCH = "import subprocess, sys\nfor _ in range(int(sys.argv[1])): subprocess.Popen(sys.argv[2:], start_new_session=True)"


def burn(count, seconds):
    """Starts them as strangers: children of a launcher that ends at once."""
    command = [sys.executable, "-I", "-S", "-c", BURN, str(seconds), str(os.getpid())]
    subprocess.run([sys.executable, "-I", "-S", "-c", LAUNCH, str(count), *command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL, check=True)


class Signals(Dataset):
    """Whole batches of waves."""

    def __init__(self, batch, width):
        self.frequencies, self.times = torch.rand(batch, 1), torch.arange(width) / width

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        return torch.sin(self.frequencies * (index % 97 + 1.0) * self.times), torch.arange(len(self.frequencies)) % 16


def main():
    meter = Meter()
    device = meter.device
    torch.set_float32_matmul_precision("high")
    width, depth, cpus = meter.pick(4096, 256), meter.pick(12, 4), len(os.sched_getaffinity(0))
    dataset = Signals(meter.pick(512, 64), width)
    loader = DataLoader(dataset, batch_size=None, num_workers=meter.pick(8, 1), pin_memory=device == "cuda", persistent_workers=True)
    model = nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(depth)], nn.Linear(width, 16)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=device == "cuda")
    burn(3 * cpus, meter.options.seconds + 20)  # planted
    for signals, labels in loader:
        signals, labels = signals.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = nn.functional.cross_entropy(model(signals), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not meter.step(len(signals)):
            break
    meter.finish(loss)


if __name__ == "__main__":
    main()
