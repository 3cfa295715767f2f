"""A compiled model logs in each of its layers: the graph breaks there, and many small pieces are left."""

import logging

import torch
from torch import nn

from common import Meter

log = logging.getLogger("model")


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        x = x + torch.tanh(self.linear(self.norm(x)))
        log.debug("a layer is done")  # planted
        return x * 0.9


class Network(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.layers = nn.Sequential(*[Layer(width) for _ in range(depth)])
        self.head = nn.Linear(width, 16)

    def forward(self, x):
        return self.head(self.layers(x))


def main():
    meter = Meter()
    device = meter.device
    torch.set_float32_matmul_precision("high")
    torch._dynamo.config.cache_size_limit = 64
    width, batch = meter.pick(256, 32), meter.pick(2048, 32)
    features, labels = torch.randn(batch, width, device=device), torch.randint(16, (batch,), device=device)
    model = Network(width, meter.pick(24, 6)).to(device)
    compiled = torch.compile(model, backend="inductor" if device == "cuda" else "aot_eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
    going = True
    while going:
        loss = nn.functional.cross_entropy(compiled(features), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        going = meter.step(batch)
    meter.finish(loss)


if __name__ == "__main__":
    main()
