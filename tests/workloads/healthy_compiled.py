"""Healthy: a compiled perceptron with a large batch."""

import torch
from torch import nn

from common import Meter


class Perceptron(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(4))

    def forward(self, x):
        for layer in self.layers:
            x = x + nn.functional.gelu(layer(x))
        return x


def main():
    meter = Meter()
    device = meter.device
    torch.set_float32_matmul_precision("high")
    width, batch = meter.pick(4096, 256), meter.pick(16384, 128)
    features, targets = torch.randn(batch, width, device=device), torch.randn(batch, width, device=device)
    model = Perceptron(width).to(device)
    compiled = torch.compile(model, backend="inductor" if device == "cuda" else "aot_eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=device == "cuda")

    def train_step():
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = nn.functional.mse_loss(compiled(features), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    going = True
    while going:
        loss = train_step()
        going = meter.step(batch)
    meter.finish(loss, train_step)


if __name__ == "__main__":
    main()
