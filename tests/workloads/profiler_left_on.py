"""A profiler that was once needed records every step."""

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

from common import Meter


class Network(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(8))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def main():
    meter = Meter()
    device = meter.device
    torch.set_float32_matmul_precision("high")
    width, batch = meter.pick(2048, 64), meter.pick(4096, 32)
    features = torch.randn(batch, width, device=device)
    model = Network(width).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=device == "cuda")
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device == "cuda")
    with profile(activities=activities, schedule=schedule(wait=0, warmup=1, active=20), record_shapes=True) as profiler:  # planted
        going = True
        while going:
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                loss = model(features).float().square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            profiler.step()
            going = meter.step(batch)
    meter.finish(loss)


if __name__ == "__main__":
    main()
