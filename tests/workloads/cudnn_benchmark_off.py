"""Convolutions of unusual shape, and cuDNN is not allowed to measure which algorithm is the fastest."""

import torch
from torch import nn

from common import Meter

torch.backends.cudnn.benchmark = False  # planted

meter = Meter()
device = meter.device
batch, size, channels = meter.pick(64, 2), meter.pick(96, 24), meter.pick(192, 8)
images = torch.randn(batch, 8, size, size, device=device).to(memory_format=torch.channels_last)
targets = torch.randn(batch, 8, size, size, device=device).to(memory_format=torch.channels_last)
model = nn.Sequential(
    nn.Conv2d(8, channels, 5, padding=2), nn.ReLU(),
    nn.Conv2d(channels, channels, 3, padding=4, dilation=4), nn.ReLU(),
    nn.Conv2d(channels, channels, 7, padding=3, groups=8), nn.ReLU(),
    nn.Conv2d(channels, 8, 1)).to(device, memory_format=torch.channels_last)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")

going = True
while going:
    with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
        loss = nn.functional.mse_loss(model(images), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    going = meter.step(batch)
meter.finish(loss)
