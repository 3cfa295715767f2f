"""Healthy: gradients of four batches are accumulated before each step of the optimiser."""

import torch
from torch import nn

from common import Meter

PARTS = 4


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Trainer:
    def __init__(self, meter):
        self.meter, self.device = meter, meter.device
        width, self.batch = meter.pick(4096, 256), meter.pick(8192, 64)
        self.features = torch.randn(PARTS, self.batch, width, device=self.device)
        self.targets = torch.randn(PARTS, self.batch, width, device=self.device)
        self.model = nn.Sequential(*[Block(width) for _ in range(2)]).to(self.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, fused=self.device == "cuda")

    def step(self):
        for features, targets in zip(self.features, self.targets):
            with torch.autocast(self.device, torch.bfloat16, enabled=self.device == "cuda"):
                loss = nn.functional.mse_loss(self.model(features), targets) / PARTS
            loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss

    def fit(self):
        going = True
        while going:
            loss = self.step()
            going = self.meter.step(PARTS * self.batch)
        self.meter.finish(loss, self.step)


if __name__ == "__main__":
    torch.set_float32_matmul_precision("high")
    Trainer(Meter()).fit()
