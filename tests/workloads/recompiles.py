"""A compiled model gets sequences of ever new lengths, and dynamic=False makes it compile anew for each."""

import torch
from torch import nn

from common import Meter

torch._dynamo.config.cache_size_limit = 1000
if hasattr(torch._dynamo.config, "accumulated_cache_size_limit"):
    torch._dynamo.config.accumulated_cache_size_limit = 1000


class Tagger(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, 16)

    def forward(self, x):
        return self.head(x + torch.tanh(self.second(torch.tanh(self.first(x)))))


def main():
    meter = Meter()
    device = meter.device
    torch.set_float32_matmul_precision("high")
    width, batch = meter.pick(2048, 64), meter.pick(64, 8)
    model = Tagger(width).to(device)
    compiled = torch.compile(model, dynamic=False, backend="inductor" if device == "cuda" else "aot_eager")  # planted
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
    step, going = 0, True
    while going:
        length = 64 + 8 * (step // 10)
        features = torch.randn(batch, length, width, device=device)
        labels = torch.randint(16, (batch, length), device=device)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            logits = compiled(features)  # planted
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        going = meter.step(batch)
        step += 1
    meter.finish(loss)


if __name__ == "__main__":
    main()
