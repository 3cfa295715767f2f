"""Anomaly detection, for finding a NaN that was mended long ago, is still on."""

import torch
from torch import nn

from common import Meter

torch.autograd.set_detect_anomaly(True)  # planted


class Mixer(nn.Module):
    """A small MLP-Mixer."""

    def __init__(self, tokens, width, depth):
        super().__init__()
        self.tokens = nn.ModuleList(nn.Linear(tokens, tokens) for _ in range(depth))
        self.channels = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, x):
        for token, channel in zip(self.tokens, self.channels):
            x = x + token(x.transpose(1, 2)).transpose(1, 2)
            x = x + nn.functional.gelu(channel(x))
        return x.mean((1, 2))


def main():
    meter = Meter()
    device = meter.device
    torch.set_float32_matmul_precision("high")
    batch, tokens, width = meter.pick(512, 8), meter.pick(256, 16), meter.pick(1024, 32)
    features, targets = torch.randn(batch, tokens, width, device=device), torch.randn(batch, device=device)
    model = Mixer(tokens, width, meter.pick(4, 4)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=device == "cuda")
    going = True
    while going:
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = nn.functional.mse_loss(model(features), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        going = meter.step(batch)
    meter.finish(loss)


if __name__ == "__main__":
    main()
