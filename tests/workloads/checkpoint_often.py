"""The whole state is saved again and again after a few steps."""

import os
import tempfile
import time

import torch
from torch import nn

from common import Meter


class Training:
    def __init__(self, folder):
        self.meter, self.path = Meter(), os.path.join(folder, "checkpoint.pt")
        self.device = self.meter.device
        width, self.batch = self.meter.pick(2048, 512), self.meter.pick(8192, 16)
        self.features = torch.randn(self.batch, width, device=self.device)
        self.model = nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(4)]).to(self.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9, fused=self.device == "cuda")

    def save(self, step):
        started = time.perf_counter()
        torch.save({"step": step, "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}, self.path)  # planted
        self.meter.planted(started)

    def run(self):
        step, going, interval = 0, True, self.meter.pick(10, 3)
        while going:
            with torch.autocast(self.device, torch.bfloat16, enabled=self.device == "cuda"):
                loss = self.model(self.features).float().square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            step += 1
            if step % interval == 0:
                self.save(step)
            going = self.meter.step(self.batch)
        self.meter.finish(loss)


if __name__ == "__main__":
    torch.set_float32_matmul_precision("high")
    with tempfile.TemporaryDirectory() as scratch:
        Training(scratch).run()
