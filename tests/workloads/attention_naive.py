"""Attention written out as two products and a softmax, which keeps every score in memory."""

import math

import torch
from torch import nn

from common import Meter


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # planted
        weights = scores.softmax(-1)  # planted
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))  # planted


class Encoder(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.layers = nn.ModuleList(Attention(width, width // 64) for _ in range(layers))
        self.head = nn.Linear(width, 16)

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x.mean(1))


def main():
    meter = Meter()
    device = meter.device
    torch.set_float32_matmul_precision("high")
    batch, length, width = meter.pick(8, 2), meter.pick(1024, 64), meter.pick(1024, 64)
    features, labels = torch.randn(batch, length, width, device=device), torch.randint(16, (batch,), device=device)
    model = Encoder(width, meter.pick(4, 2)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
    going = True
    while going:
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = nn.functional.cross_entropy(model(features), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        going = meter.step(batch)
    meter.finish(loss)


if __name__ == "__main__":
    main()
