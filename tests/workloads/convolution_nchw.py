"""A convolutional network under autocast keeps its tensors in NCHW order: cuDNN turns them around at every layer."""

import torch
from torch import nn

from common import Meter


def convolution(inputs, outputs, stride=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


class Network(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.stages = nn.Sequential(
            convolution(4, channels, 2), convolution(channels, channels), convolution(channels, channels),
            convolution(channels, 2 * channels, 2), convolution(2 * channels, 2 * channels), convolution(2 * channels, 2 * channels))
        self.head = nn.Linear(2 * channels, 16)

    def forward(self, images):
        return self.head(self.stages(images).mean((2, 3)))


def main():
    meter = Meter()
    device = meter.device
    torch.backends.cudnn.benchmark = True
    batch, size = meter.pick(128, 4), meter.pick(160, 32)
    images = torch.randn(batch, 4, size, size, device=device)
    labels = torch.randint(16, (batch,), device=device)
    model = Network(meter.pick(128, 8)).to(device)  # planted
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=device == "cuda")

    def train_step():
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = nn.functional.cross_entropy(model(images), labels)  # planted
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
