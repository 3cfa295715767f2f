"""The outputs of every batch are moved to the CPU as they come."""

import collections

import torch
from torch import nn

from common import Meter


class Collector:
    """Keeps the outputs of the last batches for the metrics of the epoch."""

    def __init__(self):
        self.outputs = collections.deque(maxlen=4)

    def add(self, outputs):
        self.outputs.append(outputs.detach().cpu())  # planted


def main():
    meter = Meter()
    device = meter.device
    torch.set_float32_matmul_precision("high")
    width, batch, words = meter.pick(4096, 128), meter.pick(4096, 64), meter.pick(16384, 512)
    features = torch.randn(batch, width, device=device)
    labels = torch.randint(words, (batch,), device=device)
    model = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, words)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
    collector, go_on = Collector(), True
    while go_on:
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            outputs = model(features)
            loss = nn.functional.cross_entropy(outputs, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        collector.add(outputs)
        go_on = meter.step(batch)
    meter.finish(loss)


if __name__ == "__main__":
    main()
