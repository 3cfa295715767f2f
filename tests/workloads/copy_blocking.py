"""The batches lie in pinned memory, but the loop waits for each copy: non_blocking was forgotten."""

import torch
from torch import nn

from common import Meter


class Autoencoder(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU())
        self.decoder = nn.Linear(hidden, width)

    def forward(self, x):
        return self.decoder(self.encoder(x))


def main():
    meter = Meter()
    device = meter.device
    torch.set_float32_matmul_precision("high")
    batch, width = meter.pick(4096, 32), meter.pick(512, 256)
    batches = [torch.randn(batch, width) for _ in range(8)]
    if device == "cuda":
        batches = [spectra.pin_memory() for spectra in batches]
    model = Autoencoder(width, meter.pick(8192, 256)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
    step, going = 0, True
    while going:
        spectra = batches[step % 8].to(device)  # planted
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = nn.functional.mse_loss(model(spectra), spectra)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        going = meter.step(batch)
        step += 1
    meter.finish(loss)


if __name__ == "__main__":
    main()
