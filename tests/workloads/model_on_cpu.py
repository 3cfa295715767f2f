"""A GPU is there and works, but the configuration of this training still says cpu."""

import torch
from torch import nn

from common import Meter

CONFIG = {
    "lr": 1e-3,
    "batch": 128,
    "device": "cpu",  # planted
}


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 32, 3, stride=2), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2), nn.ReLU())
        self.head = nn.Linear(64, 16)

    def forward(self, images):
        return self.head(self.layers(images).mean((2, 3)))


def main(config):
    meter = Meter()
    device = torch.device(config["device"])  # planted
    images = torch.randn(config["batch"], 3, 48, 48, device=device)
    labels = torch.randint(16, (config["batch"],), device=device)
    model = Classifier().to(device)  # planted
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"])
    going = True
    while going:
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        going = meter.step(len(images))
    meter.finish(loss)


if __name__ == "__main__":
    main(CONFIG)
