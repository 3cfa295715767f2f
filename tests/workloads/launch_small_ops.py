"""Fifty tiny layers: the GPU finishes each kernel before the next one is launched."""

import torch
from torch import nn

from common import Meter


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        return x + torch.tanh(self.linear(self.norm(x)))  # planted


class Deep(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.layers = nn.ModuleList(Residual(width) for _ in range(depth))
        self.head = nn.Linear(width, 8)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)  # planted
        return self.head(x)


def main():
    meter = Meter()
    device = meter.device
    torch.set_float32_matmul_precision("high")
    batch, width = meter.pick(1024, 64), 64
    features, labels = torch.randn(batch, width, device=device), torch.randint(8, (batch,), device=device)
    model = Deep(width, meter.pick(50, 20)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=device == "cuda")

    def train_step():
        loss = nn.functional.cross_entropy(model(features), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    go_on = True
    while go_on:
        loss = train_step()
        go_on = meter.step(batch)
    meter.finish(loss, train_step)


if __name__ == "__main__":
    main()
