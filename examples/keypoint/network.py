"""A keypoint network for slider CAPTCHAs: where is the gap, where is the slider?"""

import torch
from torch import nn


def convolution(inputs, outputs, stride=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first = convolution(channels, channels)
        self.second = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels))

    def forward(self, x):
        return torch.relu(x + self.second(self.first(x)))


class KeypointNetwork(nn.Module):
    """Pictures of 160 × 320 in; heat maps and offsets of gap and slider on a grid of 40 × 80 out."""

    def __init__(self, channels):
        super().__init__()
        widths = [channels, 2 * channels, 4 * channels, 8 * channels]
        self.stem = nn.Sequential(convolution(3, channels, 2), convolution(channels, channels, 2), Residual(channels))
        self.down = nn.ModuleList(
            nn.Sequential(convolution(a, b, 2), *[Residual(b) for _ in range(blocks)]) for a, b, blocks in zip(widths, widths[1:], (2, 2, 4)))
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in zip(widths, widths[1:]))
        self.merge = Residual(channels)
        self.heatmaps = nn.Sequential(convolution(channels, channels), nn.Conv2d(channels, 2, 1))
        self.offsets = nn.Sequential(convolution(channels, channels), nn.Conv2d(channels, 4, 1))
        nn.init.constant_(self.heatmaps[-1].bias, -2.2)

    def forward(self, images):
        levels = [self.stem(images)]
        for down in self.down:
            levels.append(down(levels[-1]))
        x = levels.pop()
        for up in reversed(self.up):
            x = up(x) + levels.pop()
        merged = self.merge(x)
        return torch.sigmoid(self.heatmaps(merged)), self.offsets(merged)


def focal_loss(predicted, target):
    """Penalises few points on a large grid, as CenterNet does."""
    predicted = predicted.clamp(1e-4, 1 - 1e-4)
    hits = target.eq(1).float()
    positive = torch.log(predicted) * (1 - predicted) ** 2 * hits
    negative = torch.log(1 - predicted) * predicted ** 2 * (1 - target) ** 4 * (1 - hits)
    return -(positive.sum() + negative.sum()) / hits.sum().clamp(min=1)


def offset_loss(predicted, target, heatmaps):
    """L1 at the points only."""
    mask = heatmaps.eq(1).float().repeat_interleave(2, dim=1)
    return ((predicted - target).abs() * mask).sum() / mask.sum().clamp(min=1)
