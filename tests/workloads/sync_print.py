"""The loss, a tensor on the GPU, is printed in every step."""

import torch
from torch import nn

from common import Meter

meter = Meter()
torch.set_float32_matmul_precision("high")
width, batch = meter.pick(3072, 128), meter.pick(10240, 64)
inputs = torch.randn(batch, width, device=meter.device)
targets = torch.randn(batch, width, device=meter.device)

model = nn.Sequential()
for number in range(4):
    model.add_module(f"linear{number}", nn.Linear(width, width))
    model.add_module(f"relu{number}", nn.ReLU())
model.to(meter.device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=meter.device == "cuda")


def run_step():
    with torch.autocast(meter.device, torch.bfloat16, enabled=meter.device == "cuda"):
        loss = nn.functional.mse_loss(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


while True:
    loss = run_step()
    print("loss", loss)  # planted
    if not meter.step(batch):
        break
meter.finish(loss, run_step)
