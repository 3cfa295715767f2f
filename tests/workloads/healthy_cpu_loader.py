"""Healthy: a convolutional network on the CPU, with a loader that costs next to nothing."""

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

from common import Meter


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.head = nn.Linear(32 * 7 * 7, 16)

    def forward(self, images):
        return self.head(self.features(images).flatten(1))


meter = Meter()
dataset = TensorDataset(torch.randn(2048, 1, 28, 28), torch.randint(16, (2048,)))
loader = DataLoader(dataset, sampler=BatchSampler(RandomSampler(dataset), 64, True), batch_size=None)
model = Network()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
going = True
while going:
    for images, labels in loader:
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        going = meter.step(len(images))
        if not going:
            break
meter.finish(loss)
