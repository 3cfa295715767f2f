"""The model is evaluated on sixty batches after every ten steps of training."""

import time

import torch
from torch import nn

from common import Meter


@torch.no_grad()
def evaluate(model, features, labels):
    model.eval()  # planted
    hits = torch.zeros((), device=labels.device)
    for _ in range(60):
        hits += (model(features).argmax(1) == labels).float().mean()  # planted
    model.train()
    return hits / 60


def main():
    meter = Meter()
    device = meter.device
    torch.set_float32_matmul_precision("high")
    width, batch = meter.pick(4096, 128), meter.pick(4096, 64)
    features, labels = torch.randn(batch, width, device=device), torch.randint(16, (batch,), device=device)
    model = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Dropout(0.1), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 16)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
    step, best, going = 0, 0.0, True
    while going:
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = nn.functional.cross_entropy(model(features), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % 10 == 0:
            started = time.perf_counter()
            best = max(best, evaluate(model, features, labels).item())  # planted
            meter.planted(started)
        going = meter.step(batch)
    meter.finish(loss)


if __name__ == "__main__":
    main()
