"""Two samples a step on a card that could take hundreds."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from common import Meter


def main():
    meter = Meter()
    device = meter.device
    torch.set_float32_matmul_precision("high")
    width = meter.pick(512, 32)
    data = TensorDataset(torch.randn(4096, 64, width), torch.randint(16, (4096,)))
    loader = DataLoader(data, batch_size=2, shuffle=True, num_workers=meter.pick(4, 1), pin_memory=device == "cuda", persistent_workers=True)  # planted
    layer = nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
    encoder = nn.TransformerEncoder(layer, meter.pick(6, 2), enable_nested_tensor=False).to(device)
    head = nn.Linear(width, 16).to(device)
    optimizer = torch.optim.AdamW([*encoder.parameters(), *head.parameters()], lr=1e-4, fused=device == "cuda")
    going = True
    while going:
        for features, labels in loader:
            features, labels = features.to(device, non_blocking=True), labels.to(device, non_blocking=True)
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                loss = nn.functional.cross_entropy(head(encoder(features).mean(1)), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            going = meter.step(len(features))
            if not going:
                break
    meter.finish(loss)


if __name__ == "__main__":
    main()
