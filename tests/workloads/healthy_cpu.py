"""Healthy: a small model on a machine without a GPU, written in whole tensors."""

import torch
from torch import nn

from common import Meter


def main():
    meter = Meter()
    features = torch.randn(4096, 256)
    targets = (features[:, :16].cumsum(1) > 0).float()
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    going = True
    while going:
        order = torch.randperm(len(features))
        for chosen in order.split(512):
            loss = nn.functional.binary_cross_entropy_with_logits(model(features[chosen]), targets[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            going = meter.step(len(chosen))
            if not going:
                break
    meter.finish(loss)


if __name__ == "__main__":
    main()
