"""Healthy: float16 with a gradient scaler whose check the fused optimiser does on the GPU."""

import torch
from torch import nn

from common import Meter


class Network(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(4))
        self.head = nn.Linear(width, 64)

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.head(x)


def main():
    meter = Meter()
    device, cuda = meter.device, meter.device == "cuda"
    torch.set_float32_matmul_precision("high")
    width, batch = meter.pick(4096, 256), meter.pick(16384, 128)
    features, labels = torch.randn(batch, width, device=device), torch.randint(64, (batch,), device=device)
    model = Network(width).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=cuda)
    scaler = torch.amp.GradScaler(device, enabled=cuda)

    def train_step():
        with torch.autocast(device, torch.float16, enabled=cuda):
            loss = nn.functional.cross_entropy(model(features), labels)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    going = True
    while going:
        loss = train_step()
        going = meter.step(batch)
    meter.finish(loss, train_step)


if __name__ == "__main__":
    main()
