"""The noise of a diffusion model is drawn on the CPU in every step and then copied to the GPU."""

import time

import torch
from torch import nn

from common import Meter


class Denoiser(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.enter = nn.Conv2d(8, channels, 3, padding=1)
        self.middle = nn.Sequential(nn.SiLU(), nn.Conv2d(channels, channels, 3, padding=1), nn.SiLU(), nn.Conv2d(channels, channels, 3, padding=1))
        self.leave = nn.Conv2d(channels, 8, 3, padding=1)

    def forward(self, x):
        return self.leave(self.middle(self.enter(x)))


def main():
    meter = Meter()
    device = meter.device
    torch.backends.cudnn.benchmark = True
    batch, size = meter.pick(256, 4), meter.pick(32, 16)
    latents = torch.randn(batch, 8, size, size, device=device).to(memory_format=torch.channels_last)
    model = Denoiser(meter.pick(256, 8)).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
    go_on = True
    while go_on:
        started = time.perf_counter()
        noise = torch.randn(batch, 8, size, size).to(device)  # planted
        meter.planted(started)
        level = torch.rand(batch, 1, 1, 1, device=device)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            guess = model(latents * (1 - level) + noise * level)
        loss = nn.functional.mse_loss(guess.float(), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        go_on = meter.step(batch)
    meter.finish(loss)


if __name__ == "__main__":
    main()
