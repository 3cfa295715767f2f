"""Healthy: a wide residual network in bfloat16 and channels-last, with cuDNN's own measuring on."""

import torch
from torch import nn

from common import Meter


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x):
        y = torch.relu(self.norm1(self.first(x)))
        return torch.relu(x + self.norm2(self.second(y)))


class ResNet(nn.Module):
    def __init__(self, channels, depth):
        super().__init__()
        self.stem = nn.Conv2d(8, channels, 4, stride=4, bias=False)
        self.blocks = nn.Sequential(*[Block(channels) for _ in range(depth)])
        self.head = nn.Linear(channels, 16)

    def forward(self, images):
        return self.head(self.blocks(self.stem(images)).mean((2, 3)))


def main():
    meter = Meter()
    device = meter.device
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    batch, size = meter.pick(256, 8), meter.pick(64, 32)
    images = torch.randn(4, batch, 8, size, size, device=device)
    labels = torch.randint(16, (4, batch), device=device)
    model = ResNet(meter.pick(512, 32), meter.pick(6, 2)).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, fused=device == "cuda")

    def train_step(number):
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = nn.functional.cross_entropy(model(images[number].to(memory_format=torch.channels_last)), labels[number])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    step, going = 0, True
    while going:
        loss = train_step(step % 4)
        going = meter.step(batch)
        step += 1
    meter.finish(loss, lambda: train_step(0))


if __name__ == "__main__":
    main()
