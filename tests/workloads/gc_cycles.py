"""A replay memory of small linked objects: Python's collector goes through all of them again and again."""

import collections
import gc
import time

import torch
from torch import nn

from common import Meter


class Transition:
    def __init__(self, state, before):  # planted
        self.state, self.before, self.after = state, before, None
        if before is not None:
            before.after = self


class Replay:
    """The last transitions of a game, each linked with its neighbours."""

    def __init__(self, most):
        self.memory = collections.deque((Transition({"position": [step]}, None) for step in range(most)), maxlen=most)

    def play(self, moves):
        for move in range(moves):
            self.memory.append(Transition({"position": [move]}, self.memory[-1] if move % 8 else None))  # planted


meter = Meter()
device = meter.device
torch.set_float32_matmul_precision("high")
width, batch = meter.pick(4096, 128), meter.pick(4096, 64)
replay = Replay(40_000)
states, values = torch.randn(batch, width, device=device), torch.randn(batch, 1, device=device)
model = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
pause = [0.0]


def watch(phase, info):
    """Measures the full collections."""
    if info["generation"] == 2 and phase == "start":
        pause[0] = time.perf_counter()
    elif info["generation"] == 2:
        meter.planted(pause[0])


gc.callbacks.append(watch)
go_on = True
while go_on:
    replay.play(2_000)
    with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
        loss = nn.functional.mse_loss(model(states), values)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    go_on = meter.step(batch)
meter.finish(loss)
