"""Large matrix products in full FP32: TF32 was switched off for reproducibility and stayed so."""

import torch
from torch import nn

from common import Meter


def configure():
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("highest")  # planted


def main():
    meter = Meter()
    configure()
    device = meter.device
    width, batch = meter.pick(4096, 128), meter.pick(8192, 64)
    features, targets = torch.randn(batch, width, device=device), torch.randn(batch, width, device=device)
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")

    def train_step():
        loss = nn.functional.mse_loss(model(features), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    while True:
        loss = train_step()
        if not meter.step(batch):
            break
    meter.finish(loss, train_step)


if __name__ == "__main__":
    main()
