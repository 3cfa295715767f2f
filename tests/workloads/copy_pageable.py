"""Large batches lie in ordinary memory, so that each copy to the GPU is staged by the driver and stops the host."""

import torch
from torch import nn

from common import Meter


def network(width):
    return nn.Sequential(
        nn.Conv2d(3, width, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(2 * width), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, 16))


def main():
    meter = Meter()
    device = meter.device
    torch.backends.cudnn.benchmark = True
    batch, size = meter.pick(256, 16), meter.pick(224, 32)
    batches = [torch.rand(batch, 3, size, size).to(memory_format=torch.channels_last) for _ in range(4)]
    labels = torch.randint(16, (batch,), device=device)
    model = network(meter.pick(64, 4)).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=device == "cuda")
    step, go_on = 0, True
    while go_on:
        images = batches[step % 4].to(device, non_blocking=True)  # planted
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        go_on = meter.step(batch)
        step += 1
    meter.finish(loss)


if __name__ == "__main__":
    main()
