"""One worker prepares what sixteen processors could: the GPU waits for it."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from common import Meter

PREPARE_SECONDS = 0.002


class Clips(Dataset):
    def __init__(self, width):
        self.clips = torch.randn(64, width)

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        until = time.perf_counter() + PREPARE_SECONDS
        while time.perf_counter() < until:
            pass
        return self.clips[index % len(self.clips)], index % 16


def train(meter):
    device = meter.device
    torch.set_float32_matmul_precision("high")
    width = meter.pick(4096, 256)
    dataset = Clips(width)
    pinned = device == "cuda"
    loader = DataLoader(dataset, batch_size=meter.pick(64, 16), num_workers=1, pin_memory=pinned, persistent_workers=True)  # planted
    model = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 16)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=pinned)
    for clips, labels in loader:
        meter.data()
        clips, labels = clips.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        with torch.autocast(device, torch.bfloat16, enabled=pinned):
            loss = nn.functional.cross_entropy(model(clips), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not meter.step(len(clips)):
            break
    meter.finish(loss)


if __name__ == "__main__":
    train(Meter())
