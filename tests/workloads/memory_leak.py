"""The outputs of all steps are kept, with nobody to read them."""

import torch
from torch import nn

from common import Meter


class Recorder:
    def __init__(self):
        self.outputs = []

    def keep(self, outputs):
        self.outputs.append(outputs)  # planted


def main():
    meter = Meter()
    device = meter.device
    torch.set_float32_matmul_precision("high")
    batch, width, kept = meter.pick(8192, 64), meter.pick(4096, 128), meter.pick(64, 2048)
    features = torch.randn(batch, width, device=device)
    targets = torch.randn(batch, kept, device=device)
    model = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, kept)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
    recorder, going = Recorder(), True
    while going:
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            outputs = model(features)
            loss = nn.functional.mse_loss(outputs, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.keep(outputs)
        going = meter.step(batch)
    meter.finish(loss)


if __name__ == "__main__":
    main()
