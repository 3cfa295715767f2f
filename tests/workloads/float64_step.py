"""The data came from NumPy as float64, so the model was made float64 too."""

import numpy as np
import torch
from torch import nn

from common import Meter

meter = Meter()
torch.set_float32_matmul_precision("high")
batch, width = meter.pick(4096, 128), meter.pick(2048, 128)
random = np.random.default_rng(0)
features = torch.from_numpy(random.standard_normal((batch, width))).to(meter.device)
targets = torch.from_numpy(random.standard_normal((batch, 1))).to(meter.device)
model = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))
model = model.double().to(meter.device)  # planted
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=meter.device == "cuda")

going = True
while going:
    loss = nn.functional.mse_loss(model(features), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    going = meter.step(batch)
meter.finish(loss)
