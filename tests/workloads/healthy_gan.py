"""Healthy: a generator and a discriminator with an optimiser each, the data on the GPU."""

import torch
from torch import nn

from common import Meter


def perceptron(inputs, width, outputs):
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outputs))


def score(logits, real):
    return nn.functional.softplus(-logits if real else logits).mean()


def main():
    meter = Meter()
    device, cuda = meter.device, meter.device == "cuda"
    torch.set_float32_matmul_precision("high")
    batch, width, size = meter.pick(16384, 128), meter.pick(4096, 256), meter.pick(1024, 128)
    data = torch.randn(4 * batch, size, device=device)
    generator, discriminator = perceptron(128, width, size).to(device), perceptron(size, width, 8).to(device)
    generator_optimizer = torch.optim.AdamW(generator.parameters(), lr=1e-5, fused=cuda)
    discriminator_optimizer = torch.optim.AdamW(discriminator.parameters(), lr=1e-5, fused=cuda)

    def train_step(real):
        noise = torch.randn(batch, 128, device=device)
        with torch.autocast(device, torch.bfloat16, enabled=cuda):
            fake = generator(noise)
            loss = score(discriminator(real), True) + score(discriminator(fake.detach()), False)
        discriminator_optimizer.zero_grad()
        loss.backward()
        discriminator_optimizer.step()
        with torch.autocast(device, torch.bfloat16, enabled=cuda):
            generator_loss = score(discriminator(fake), True)
        generator_optimizer.zero_grad()
        generator_loss.backward()
        generator_optimizer.step()
        return loss

    step, going = 0, True
    while going:
        start = step % 4 * batch
        loss = train_step(data[start:start + batch])
        going = meter.step(batch)
        step += 1
    meter.finish(loss, lambda: train_step(data[:batch]))


if __name__ == "__main__":
    main()
