"""Two ranks: the second one works longer before each step, and the first one waits for it. Start it with torchrun."""

import os
import time

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from common import Meter

EXTRA_SECONDS = 0.02


def prepare(rank):
    """The second rank has the longer documents."""
    until = time.perf_counter() + EXTRA_SECONDS * rank
    while time.perf_counter() < until:  # planted
        pass  # planted


def main():
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    meter = Meter()
    device = meter.device
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // 2))
    width, batch = meter.pick(1024, 64), meter.pick(4096, 16)
    features, labels = torch.randn(batch, width, device=device), torch.randint(16, (batch,), device=device)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(width, 256), nn.GELU(), nn.Linear(256, 16)).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
    going = True
    while going:
        prepare(rank)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = nn.functional.cross_entropy(model(features), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        agreed = torch.tensor(int(meter.step(batch)))
        distributed.all_reduce(agreed, op=distributed.ReduceOp.MIN)
        going = bool(agreed)
    meter.finish(loss)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
