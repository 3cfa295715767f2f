"""A mixture of experts finds the rows of each expert with nonzero(), whose length the CPU must wait for."""

import torch
from torch import nn

from common import Meter


class Mixture(nn.Module):
    def __init__(self, width, experts):
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)) for _ in range(experts))

    def forward(self, x):
        weights, choice = self.router(x).softmax(-1).max(-1)
        result = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = (choice == number).nonzero().squeeze(1)  # planted
            outputs = expert(x.index_select(0, rows)) * weights.index_select(0, rows).unsqueeze(1)
            result = result.index_add(0, rows, outputs.to(x.dtype))
        return x + result


class Network(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(*[Mixture(width, 4) for _ in range(2)])
        self.head = nn.Linear(width, 16)

    def forward(self, x):
        return self.head(self.layers(x))


def main():
    meter = Meter()
    device = meter.device
    torch.set_float32_matmul_precision("high")
    width, batch = meter.pick(1024, 32), meter.pick(131072, 64)
    features, labels = torch.randn(batch, width, device=device), torch.randint(16, (batch,), device=device)
    model = Network(width).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
    go_on = True
    while go_on:
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = nn.functional.cross_entropy(model(features), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        go_on = meter.step(batch)
    meter.finish(loss)


if __name__ == "__main__":
    main()
