"""The optimiser updates a hundred tensors one after the other."""

import torch
from torch import nn

from common import Meter


class Stack(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x)) + x
        return x


class Experiment:
    def __init__(self):
        self.meter = Meter()
        device = self.meter.device
        width, self.batch = self.meter.pick(1024, 32), self.meter.pick(16384, 16)
        self.features = torch.randn(self.batch, width, device=device)
        self.model = Stack(width, self.meter.pick(50, 40)).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, foreach=False, fused=False)  # planted

    def train_step(self):
        device = self.meter.device
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = self.model(self.features).float().pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss

    def run(self):
        going = True
        while going:
            loss = self.train_step()
            going = self.meter.step(self.batch)
        self.meter.finish(loss, self.train_step)


if __name__ == "__main__":
    torch.set_float32_matmul_precision("high")
    Experiment().run()
