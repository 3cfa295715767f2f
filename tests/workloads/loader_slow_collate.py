"""Sentences are padded token by token in the collate function."""

import random

import torch
from torch import nn
from torch.utils.data import DataLoader

from common import Meter

LENGTH = 256
WORDS = 5000


def pad(sentences):  # planted
    tokens = torch.zeros(len(sentences), LENGTH, dtype=torch.long)
    for row, sentence in enumerate(sentences):
        for column, token in enumerate(sentence):
            tokens[row, column] = token
    return tokens


class Tagger(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, width)
        self.layers = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.GELU())
        self.head = nn.Linear(width, 16)

    def forward(self, tokens):
        return self.head(self.layers(self.embedding(tokens)))


def main():
    meter = Meter()
    device = meter.device
    torch.set_float32_matmul_precision("high")
    generator = random.Random(0)
    sentences = [[generator.randrange(WORDS) for _ in range(generator.randint(200, LENGTH))] for _ in range(512)] * 200
    loader = DataLoader(sentences, batch_size=meter.pick(128, 32), collate_fn=pad, num_workers=meter.pick(6, 1), pin_memory=device == "cuda")  # planted
    model = Tagger(meter.pick(512, 32)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
    for tokens in loader:
        meter.data()
        tokens = tokens.to(device, non_blocking=True)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten() % 16)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not meter.step(len(tokens)):
            break
    meter.finish(loss)


if __name__ == "__main__":
    main()
