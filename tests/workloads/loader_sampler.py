"""Batches of sentences of like lengths, for each of which the sampler sorts all of them anew."""

import random

import torch
from torch import nn
from torch.utils.data import DataLoader

from common import Meter

SENTENCES = 60000


class LikeLengths(torch.utils.data.Sampler):
    def __init__(self, lengths, batch):
        self.lengths, self.batch = lengths, batch

    def __len__(self):
        return len(self.lengths) // self.batch

    def __iter__(self):
        for _ in range(len(self)):
            by_length = sorted(range(len(self.lengths)), key=lambda place: self.lengths[place])  # planted
            start = random.randrange(len(self.lengths) - self.batch)
            yield by_length[start:start + self.batch]


class Sentences(torch.utils.data.Dataset):
    def __init__(self, lengths, width):
        self.lengths, self.vectors = lengths, torch.randn(256, width)

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, place):
        return self.vectors[place % 256]


def main():
    meter = Meter()
    device = meter.device
    torch.set_float32_matmul_precision("high")
    width, batch = meter.pick(1024, 64), meter.pick(256, 32)
    lengths = [random.randint(5, 200) for _ in range(SENTENCES)]
    sampler = LikeLengths(lengths, batch)
    loader = DataLoader(Sentences(lengths, width), batch_sampler=sampler, num_workers=meter.pick(4, 0), pin_memory=device == "cuda")
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
    for vectors in loader:
        meter.data()
        vectors = vectors.to(device, non_blocking=True)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = nn.functional.mse_loss(model(vectors), vectors)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not meter.step(len(vectors)):
            break
    meter.finish(loss)


if __name__ == "__main__":
    main()
