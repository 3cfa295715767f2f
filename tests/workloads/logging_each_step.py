"""Every step writes its settings and measurements to a log file and waits until they are on the disk."""

import json
import os
import tempfile
import time

import torch
from torch import nn

from common import Meter


class Log:
    def __init__(self):
        self.file = tempfile.NamedTemporaryFile("w", suffix=".jsonl")

    def write(self, record):
        self.file.write(json.dumps(record) + "\n")  # planted
        self.file.flush()
        os.fsync(self.file.fileno())  # planted


meter = Meter()
device = meter.device
torch.set_float32_matmul_precision("high")
width, batch = meter.pick(2048, 128), meter.pick(4096, 32)
features, labels = torch.randn(batch, width, device=device), torch.randint(16, (batch,), device=device)
model = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, 16)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
settings = {f"option{number}": number / 7 for number in range(1000)}
log, step, going = Log(), 0, True
while going:
    with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
        loss = nn.functional.cross_entropy(model(features), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    started = time.perf_counter()
    log.write({"step": step, "time": time.time(), "settings": settings})
    meter.planted(started)
    going = meter.step(batch)
    step += 1
meter.finish(loss)
