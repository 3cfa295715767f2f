"""Volumes of 32 MB come from the disk each time: the page cache never holds them, as with a data set larger than memory."""

import os
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from common import Meter


class Volumes(Dataset):
    def __init__(self, folder, count, values):
        self.paths = [os.path.join(folder, f"volume-{number}.bin") for number in range(count)]
        data = np.random.default_rng(0).random(values, dtype=np.float32)
        for path in self.paths:
            with open(path, "wb") as file:
                data.tofile(file)
                os.fsync(file.fileno())

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        with open(self.paths[index % len(self.paths)], "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            values = np.fromfile(file, dtype=np.float32)  # planted
        return torch.from_numpy(values.reshape(-1, 4096)[:256].copy()), index % 16


def main(folder):
    meter = Meter()
    device = meter.device
    torch.set_float32_matmul_precision("high")
    dataset = Volumes(folder, 16, meter.pick(8 << 20, 2 << 20))
    loader = DataLoader(dataset, batch_size=4, num_workers=meter.pick(4, 1), pin_memory=device == "cuda", persistent_workers=True)  # planted
    model = nn.Sequential(nn.Linear(4096, meter.pick(4096, 64)), nn.GELU(), nn.Linear(meter.pick(4096, 64), 16)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
    for volumes, labels in loader:
        meter.data()
        volumes, labels = volumes.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = nn.functional.cross_entropy(model(volumes).mean(1), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not meter.step(len(volumes)):
            break
    meter.finish(loss)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(scratch)
