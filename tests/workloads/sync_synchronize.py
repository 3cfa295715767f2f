"""Each phase of a step is timed with torch.cuda.synchronize(), and the timing was never taken out."""

import time

import torch
from torch import nn

from common import Meter


class Stopwatch:
    def __init__(self):
        self.seconds = {}
        self.last = time.perf_counter()

    def lap(self, phase):
        if torch.cuda.is_available():
            torch.cuda.synchronize()  # planted
        now = time.perf_counter()
        self.seconds[phase] = self.seconds.get(phase, 0.0) + now - self.last
        self.last = now


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        return x + nn.functional.gelu(self.linear(self.norm(x)))


def main():
    meter = Meter()
    device = meter.device
    torch.set_float32_matmul_precision("high")
    width, batch = meter.pick(2560, 128), meter.pick(12288, 64)
    features, targets = torch.randn(batch, width, device=device), torch.randn(batch, width, device=device)
    model = nn.Sequential(*[Block(width) for _ in range(4)]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
    watch, go_on = Stopwatch(), True
    while go_on:
        optimizer.zero_grad()
        watch.lap("zero")
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = nn.functional.mse_loss(model(features), targets)
        watch.lap("forward")
        loss.backward()
        watch.lap("backward")
        optimizer.step()
        watch.lap("optimizer")
        go_on = meter.step(batch)
    meter.finish(loss)


if __name__ == "__main__":
    main()
