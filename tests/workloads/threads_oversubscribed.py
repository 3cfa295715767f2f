"""A training on the CPU with sixteen threads for each processor."""

import os

import torch
from torch import nn

from common import Meter


class Trainer:
    def __init__(self):
        torch.set_num_threads(16 * len(os.sched_getaffinity(0)))  # planted
        self.meter = Meter()
        self.features = torch.randn(256, 256)
        self.labels = torch.randint(16, (256,))
        self.model = nn.Sequential(nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 16))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def run(self):
        going = True
        while going:
            self.loss = nn.functional.cross_entropy(self.model(self.features), self.labels)
            self.optimizer.zero_grad()
            self.loss.backward()
            self.optimizer.step()
            going = self.meter.step(len(self.features))
        self.meter.finish(self.loss)


Trainer().run()
