"""A graph network under deterministic algorithms: its scattered sums are sorted first, in every step."""

import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
from torch import nn

from common import Meter


def reproducible(seed):
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)  # planted


class Convolution(nn.Module):
    """Each node takes the sum over its neighbours."""

    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, nodes, sources, targets):
        messages = self.linear(nodes).index_select(0, sources)
        return nodes + torch.relu(torch.zeros_like(messages[:len(nodes)]).index_add(0, targets, messages))


class GraphNetwork(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleList(Convolution(width) for _ in range(3))
        self.head = nn.Linear(width, 16)

    def forward(self, nodes, sources, targets):
        for layer in self.layers:
            nodes = layer(nodes, sources, targets)
        return self.head(nodes)


def main():
    meter = Meter()
    reproducible(0)
    torch.set_float32_matmul_precision("high")
    device = meter.device
    count, edges, width = meter.pick(100_000, 500), meter.pick(1_000_000, 4_000), meter.pick(128, 16)
    nodes, labels = torch.randn(count, width, device=device), torch.randint(16, (count,), device=device)
    sources, targets = torch.randint(count, (2, edges), device=device)
    model = GraphNetwork(width).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=device == "cuda")
    going = True
    while going:
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = nn.functional.cross_entropy(model(nodes, sources, targets), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        going = meter.step(count)
    meter.finish(loss)


if __name__ == "__main__":
    main()
