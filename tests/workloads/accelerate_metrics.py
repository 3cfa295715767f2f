"""Accelerate, with the norm of every gradient read one by one in every step."""

import torch
from torch import nn

from common import Meter, need

accelerate = need("accelerate")


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def gradient_norms(model):
    return {name: parameter.grad.norm().item() for name, parameter in model.named_parameters()}  # planted


def main():
    meter = Meter()
    torch.set_float32_matmul_precision("high")
    accelerator = accelerate.Accelerator(mixed_precision=meter.pick("bf16", "no"), cpu=meter.device == "cpu")
    width, batch = meter.pick(1024, 64), meter.pick(32768, 32)
    features = torch.randn(batch, width, device=meter.device)
    targets = torch.randn(batch, width, device=meter.device)
    model = nn.Sequential(*[Block(width) for _ in range(12)])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=meter.device == "cuda")
    model, optimizer = accelerator.prepare(model, optimizer)
    going, history = True, {}
    while going:
        loss = nn.functional.mse_loss(model(features), targets)
        accelerator.backward(loss)
        history = gradient_norms(model)
        optimizer.step()
        optimizer.zero_grad()
        going = meter.step(batch)
    accelerator.print(f"largest gradient {max(history.values()):.4f}")
    meter.finish(loss)


if __name__ == "__main__":
    main()
