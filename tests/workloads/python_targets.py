"""Heat maps are worked out pixel by pixel in every step, although the data set holds them."""

import math
import time

import numpy as np
import torch
from torch import nn

from common import Meter

HEIGHT, WIDTH = 24, 40


class Keypoints:
    """Pictures, the points in them, and a ready heat map for each point."""

    def __init__(self, count, device):
        self.images = torch.randn(count, 3, 2 * HEIGHT, 2 * WIDTH, device=device)
        self.points = np.random.default_rng(0).uniform((0, 0), (HEIGHT, WIDTH), (count, 2))
        rows, columns = np.mgrid[0:HEIGHT, 0:WIDTH]
        distance = (rows - self.points[:, 0, None, None]) ** 2 + (columns - self.points[:, 1, None, None]) ** 2
        self.heatmaps = torch.from_numpy(np.exp(-distance / 8)).float().to(device)


class Trainer:
    def __init__(self, meter):
        self.meter, self.device = meter, meter.device
        channels = meter.pick(256, 4)
        self.batch = meter.pick(32, 8)
        self.data = Keypoints(8 * self.batch, self.device)
        self.model = nn.Sequential(nn.Conv2d(3, channels, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1),
                                   nn.ReLU(), nn.Conv2d(channels, 1, 1)).to(self.device, memory_format=torch.channels_last)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=self.device == "cuda")

    def generate_targets(self, points):
        maps = np.empty((len(points), HEIGHT, WIDTH), np.float32)
        for number, (y, x) in enumerate(points):
            for row in range(HEIGHT):
                for column in range(WIDTH):
                    maps[number, row, column] = math.exp(-((row - y) ** 2 + (column - x) ** 2) / 8)  # planted
        return torch.from_numpy(maps)

    def step(self, start):
        images = self.data.images[start:start + self.batch]
        started = time.perf_counter()
        targets = self.generate_targets(self.data.points[start:start + self.batch])
        self.meter.planted(started)
        targets = targets.to(self.device)
        with torch.autocast(self.device, torch.bfloat16, enabled=self.device == "cuda"):
            heatmaps = self.model(images)[:, 0]
        loss = nn.functional.mse_loss(heatmaps.float(), targets)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss

    def run(self):
        torch.backends.cudnn.benchmark = True
        step, go_on = 0, True
        while go_on:
            loss = self.step(step % 8 * self.batch)
            go_on = self.meter.step(self.batch)
            step += 1
        self.meter.finish(loss)


if __name__ == "__main__":
    Trainer(Meter()).run()
