"""Each batch is the first one of a new iteration, as in many adversarial and meta-learning programs."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from common import Meter


def loader_of(meter, samples, width):
    data = TensorDataset(torch.randn(samples, width), torch.randint(16, (samples,)))
    return DataLoader(data, meter.pick(2048, 64), shuffle=True, num_workers=meter.pick(4, 1), pin_memory=meter.device == "cuda")


def main():
    meter = Meter()
    device = meter.device
    torch.set_float32_matmul_precision("high")
    width = meter.pick(2048, 128)
    loader = loader_of(meter, meter.pick(65536, 4096), width)
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 16)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=device == "cuda")
    while True:
        features, labels = next(iter(loader))  # planted
        meter.data()
        features, labels = features.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = nn.functional.cross_entropy(model(features), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not meter.step(len(features)):
            break
    meter.finish(loss)


if __name__ == "__main__":
    main()
