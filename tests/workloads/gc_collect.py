"""Python's garbage collector is called by hand in every step, over a data set that is a heap of small objects."""

import gc
import time

import torch
from torch import nn

from common import Meter


class Sentence:
    def __init__(self, number):
        self.words = {"id": number, "tags": [number % 7, number % 11]}


def main():
    meter = Meter()
    device = meter.device
    torch.set_float32_matmul_precision("high")
    width, batch = meter.pick(4096, 128), meter.pick(4096, 64)
    features = torch.randn(batch, width, device=device)
    model = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, 8)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
    gc.freeze()
    corpus = [Sentence(number) for number in range(30_000)]
    labels = torch.tensor([sentence.words["tags"][0] for sentence in corpus[:batch]], device=device)
    go_on = True
    while go_on:
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = nn.functional.cross_entropy(model(features), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        started = time.perf_counter()
        gc.collect()  # planted
        meter.planted(started)
        go_on = meter.step(batch)
    meter.finish(loss)


if __name__ == "__main__":
    main()
