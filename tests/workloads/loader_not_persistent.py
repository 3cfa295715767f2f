"""Epochs of eight batches, and each of them starts its workers anew."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from common import Meter


class Training:
    BATCHES = 8

    def __init__(self, meter):
        self.meter, self.device = meter, meter.device
        batch, width = meter.pick(2048, 64), meter.pick(2048, 128)
        data = TensorDataset(torch.randn(self.BATCHES * batch, width), torch.randint(16, (self.BATCHES * batch,)))
        self.loader = DataLoader(data, batch, shuffle=True, num_workers=meter.pick(8, 2), pin_memory=self.device == "cuda", persistent_workers=False)  # planted
        self.model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 16)).to(self.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=self.device == "cuda")

    def epoch(self):
        for features, labels in self.loader:
            self.meter.data()
            features, labels = features.to(self.device, non_blocking=True), labels.to(self.device, non_blocking=True)
            with torch.autocast(self.device, torch.bfloat16, enabled=self.device == "cuda"):
                self.loss = nn.functional.cross_entropy(self.model(features), labels)
            self.optimizer.zero_grad()
            self.loss.backward()
            self.optimizer.step()
            if not self.meter.step(len(features)):
                return False
        return True


if __name__ == "__main__":
    torch.set_float32_matmul_precision("high")
    training = Training(Meter())
    while training.epoch():
        pass
    training.meter.finish(training.loss)
