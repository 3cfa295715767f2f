"""The allocator's cache is emptied in every step, "to be safe"."""

import torch
from torch import nn

from common import Meter


class Trainer:
    def __init__(self, meter):
        self.meter, self.device = meter, meter.device
        width, self.batch = meter.pick(4096, 128), meter.pick(8192, 32)
        self.features = torch.randn(self.batch, width, device=self.device)
        self.model = nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(4)]).to(self.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, fused=self.device == "cuda")

    def step(self):
        with torch.autocast(self.device, torch.bfloat16, enabled=self.device == "cuda"):
            loss = self.model(self.features).float().square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        torch.cuda.empty_cache()  # planted
        return loss

    def fit(self):
        going = True
        while going:
            loss = self.step()
            going = self.meter.step(self.batch)
        self.meter.finish(loss)


if __name__ == "__main__":
    torch.set_float32_matmul_precision("high")
    Trainer(Meter()).fit()
