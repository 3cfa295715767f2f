"""One combination of the same search rewritten by hand, as somebody would who knows all of it: what `fullwatt tune` is measured against."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader
from train import BATCH_SIZE, Forecaster, Windows


def train(model, loader, optimizer, device, epochs):
    steps, started, losses = 0, None, []
    for _ in range(epochs):
        for windows, target in loader:
            windows, target = windows.to(device, non_blocking=True), target.to(device, non_blocking=True)
            with torch.autocast(device.type, torch.bfloat16):
                outputs = model(windows)
            loss = nn.functional.mse_loss(outputs.float(), target)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.detach())
            steps += 1
            if started is None:  # compiling is over
                started = time.perf_counter()
    return torch.stack(losses).mean().item(), steps, time.perf_counter() - started


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--length", type=int, default=60)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--workers", type=int, default=8)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(Windows(arguments.length), batch_size=BATCH_SIZE, shuffle=True, num_workers=arguments.workers, drop_last=True,
                        pin_memory=device.type == "cuda", prefetch_factor=4, persistent_workers=True)
    model = Forecaster(arguments.hidden).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    loss, steps, seconds = train(torch.compile(model), loader, optimizer, device, arguments.epochs)
    print(f"steps={steps} loss={loss:.4f} seconds={seconds:.2f} samples_per_second={(steps - 1) * BATCH_SIZE / seconds:.1f}")


if __name__ == "__main__":
    main()
