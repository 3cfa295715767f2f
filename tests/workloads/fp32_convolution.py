"""Convolutions in full FP32: cuDNN may not use TF32."""

import torch
from torch import nn

from common import Meter

torch.backends.cudnn.benchmark = True
torch.backends.cudnn.allow_tf32 = False  # planted


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return torch.relu(x + self.norm(self.second(torch.relu(self.first(x)))))


class Network(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.stem = nn.Conv2d(4, channels, 3, stride=2, padding=1, bias=False)
        self.blocks = nn.Sequential(*[Block(channels) for _ in range(3)])
        self.head = nn.Linear(channels, 16)

    def forward(self, images):
        return self.head(self.blocks(self.stem(images)).mean((2, 3)))


def main():
    meter = Meter()
    device = meter.device
    batch, size = meter.pick(128, 4), meter.pick(96, 32)
    images = torch.randn(batch, 4, size, size, device=device).to(memory_format=torch.channels_last)
    labels = torch.randint(16, (batch,), device=device)
    model = Network(meter.pick(256, 8)).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=device == "cuda")
    going = True
    while going:
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        going = meter.step(batch)
    meter.finish(loss)


if __name__ == "__main__":
    main()
