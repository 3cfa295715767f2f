"""Noise for the augmentation is drawn with NumPy in the training loop."""

import time

import numpy as np
import torch
from torch import nn

from common import Meter

meter = Meter()
device = meter.device
torch.backends.cudnn.benchmark = True
random = np.random.default_rng(0)

batch = meter.pick(512, 64)
pictures = random.random((2048, 3, 32, 32), dtype=np.float32)
labels = torch.arange(2048, device=device) % 16
staging = [torch.empty(batch, 3, 32, 32, pin_memory=device == "cuda") for _ in range(2)]
width = meter.pick(256, 4)
model = nn.Sequential(nn.Conv2d(3, width, 4, stride=4), nn.ReLU(), nn.Conv2d(width, width, 3, stride=2, padding=1), nn.ReLU(),
                      nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 16)).to(device, memory_format=torch.channels_last)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=device == "cuda")


def augment(images):
    return images + random.normal(0.0, 0.1, images.shape)  # planted


step, go_on = 0, True
while go_on:
    start = step * batch % 2048
    started = time.perf_counter()
    noisy = augment(pictures[start:start + batch])
    meter.planted(started)
    host = staging[step % 2]
    host.copy_(torch.from_numpy(noisy))
    images = host.to(device, non_blocking=True, memory_format=torch.channels_last)
    with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
        loss = nn.functional.cross_entropy(model(images), labels[start:start + batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    go_on = meter.step(batch)
    step += 1
meter.finish(loss)
