"""Healthy: the whole data set lies on the GPU, and the model itself is bfloat16."""

import torch
from torch import nn

from common import Meter

meter = Meter()
torch.set_float32_matmul_precision("high")
dtype = torch.bfloat16 if meter.device == "cuda" else torch.float32
batch, width = meter.pick(16384, 256), meter.pick(4096, 256)
features = torch.randn(4 * batch, width, device=meter.device, dtype=dtype)
labels = torch.randint(64, (4 * batch,), device=meter.device)
model = nn.Sequential(
    nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
    nn.Linear(width, 64)).to(meter.device, dtype)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, fused=meter.device == "cuda")


def train_step(chosen):
    loss = nn.functional.cross_entropy(model(features[chosen]), labels[chosen])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


going = True
while going:
    order = torch.randperm(len(features), device=meter.device)
    for chosen in order.split(batch):
        loss = train_step(chosen)
        going = meter.step(len(chosen))
        if not going:
            break
meter.finish(loss, lambda: train_step(order[:batch]))
