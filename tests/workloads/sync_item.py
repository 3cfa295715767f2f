"""The loss is read in every step: the GPU runs dry each time and waits for the next kernels to be launched."""

import torch
from torch import nn

from common import Meter


def network(width):
    layers = []
    for _ in range(4):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 16))


def main():
    meter = Meter()
    device = meter.device
    torch.set_float32_matmul_precision("high")
    width, batch = meter.pick(3072, 128), meter.pick(8192, 64)
    features = torch.randn(8, batch, width, device=device)
    labels = torch.randint(16, (8, batch), device=device)
    model = network(width).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
    total, step, go_on = 0.0, 0, True

    def train_step():
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = nn.functional.cross_entropy(model(features[step % 8]), labels[step % 8])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    while go_on:
        loss = train_step()
        total += loss.item()  # planted
        go_on = meter.step(batch)
        step += 1
    print(f"mean loss {total / step:.4f}")
    meter.finish(loss, train_step)


if __name__ == "__main__":
    main()
