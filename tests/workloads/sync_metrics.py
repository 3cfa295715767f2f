"""The accuracy of each class is fetched from the GPU one by one, in every step."""

import torch
from torch import nn

from common import Meter

CLASSES = 100


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width), nn.GELU())
        self.head = nn.Linear(width, CLASSES)

    def forward(self, features):
        return self.head(self.body(features))


class Metrics:
    def __init__(self):
        self.hits = [0.0] * CLASSES

    def update(self, logits, labels):
        right = (logits.argmax(1) == labels).float()
        per_class = torch.zeros(CLASSES, device=labels.device).index_add_(0, labels, right)
        for number, value in enumerate(per_class):
            self.hits[number] += value.item()  # planted


def main():
    meter = Meter()
    device = meter.device
    torch.set_float32_matmul_precision("high")
    width, batch = meter.pick(4096, 128), meter.pick(8192, 64)
    features = torch.randn(batch, width, device=device)
    labels = torch.randint(CLASSES, (batch,), device=device)
    model, metrics = Model(width).to(device), Metrics()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
    go_on = True
    while go_on:
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            logits = model(features)
            loss = nn.functional.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        metrics.update(logits.detach(), labels)
        go_on = meter.step(batch)
    meter.finish(loss)


if __name__ == "__main__":
    main()
