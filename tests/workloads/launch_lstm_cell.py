"""A recurrent network steps through time in Python, one small cell after the other."""

import torch
from torch import nn

from common import Meter

LENGTH = 60


class Forecaster(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.hidden = hidden
        self.cell = nn.LSTMCell(features, hidden)
        self.head = nn.Linear(hidden, 8)

    def forward(self, series):
        state = torch.zeros(len(series), self.hidden, device=series.device)
        memory = torch.zeros_like(state)
        for time in range(series.shape[1]):
            state, memory = self.cell(series[:, time], (state, memory))  # planted
        return self.head(state)


meter = Meter()
torch.set_float32_matmul_precision("high")
batch = meter.pick(256, 32)
series = torch.randn(batch, LENGTH, 16, device=meter.device)
targets = torch.randn(batch, 8, device=meter.device)
model = Forecaster(16, meter.pick(256, 32)).to(meter.device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=meter.device == "cuda")

going = True
while going:
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(series), targets)
    loss.backward()
    optimizer.step()
    going = meter.step(batch)
meter.finish(loss)
