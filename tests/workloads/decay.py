"""The mean over all losses so far is worked out from the whole list in every step, so that steps become longer and longer."""

import time

import torch
from torch import nn

from common import Meter


class History:
    """Keeps the loss of every sample."""

    def __init__(self):
        self.values = []

    def add(self, values):
        self.values.extend(values)
        return sum(self.values) / len(self.values)  # planted


def main():
    meter = Meter()
    device = meter.device
    torch.set_float32_matmul_precision("high")
    width, batch = meter.pick(4096, 64), meter.pick(8192, 512)
    features, targets = torch.randn(batch, width, device=device), torch.randn(batch, 1, device=device)
    model = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
    history, guess = History(), [0.5] * meter.pick(8192, 2048)
    go_on = True
    while go_on:
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = nn.functional.mse_loss(model(features), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        started = time.perf_counter()
        history.add(guess)
        meter.planted(started)
        go_on = meter.step(batch)
    meter.finish(loss)


if __name__ == "__main__":
    main()
