"""cuDNN was switched off to get around an error, long ago."""

import torch
from torch import nn

from common import Meter


def settings():
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.enabled = False  # planted


class Network(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(8, channels, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU())
        self.head = nn.Linear(channels, 16)

    def forward(self, images):
        return self.head(self.body(images).mean((2, 3)))


def main():
    meter = Meter()
    settings()
    device = meter.device
    batch, size = meter.pick(64, 4), meter.pick(96, 24)
    images = torch.randn(batch, 8, size, size, device=device).to(memory_format=torch.channels_last)
    labels = torch.randint(16, (batch,), device=device)
    model = Network(meter.pick(128, 8)).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=device == "cuda")
    going = True
    while going:
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        going = meter.step(batch)
    meter.finish(loss)


if __name__ == "__main__":
    main()
