"""The same training rewritten by hand, as somebody would who knows all of it: what `fullwatt tune` is measured against."""

import argparse
import pathlib
import time

import numpy as np
import torch
from torch.utils.data import DataLoader

import settings
from network import KeypointNetwork, focal_loss, offset_loss
from npy_loader import BatchFiles

HERE = pathlib.Path(__file__).resolve().parent


class StoredBatches(BatchFiles):
    """Only what is used, as it was stored: images travel as bytes, a quarter of what they are in float32."""

    def __getitem__(self, index):
        path = str(self.files[index])
        return {name: torch.from_numpy(np.load(path.replace("images", name))) for name in ("images", "heatmaps", "offsets")}


def batches(loader, device):
    for batch in loader:
        images, heatmaps, offsets = (batch[name].to(device, non_blocking=True) for name in ("images", "heatmaps", "offsets"))
        yield images.to(torch.float32, memory_format=torch.channels_last).div_(255), heatmaps, offsets


def train(model, loader, optimizer, device, epochs, most_steps):
    samples, steps, started = 0, 0, None
    loss = torch.zeros((), device=device)
    for _ in range(epochs):
        for images, heatmaps, offsets in batches(loader, device):
            with torch.autocast(device.type, torch.bfloat16):
                predicted, moved = model(images)
            loss = focal_loss(predicted.float(), heatmaps) + offset_loss(moved.float(), offsets, heatmaps)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            steps += 1
            if started is None:  # compiling is over
                started = time.perf_counter()
            else:
                samples += len(images)
            if steps == most_steps:
                return loss.item(), steps, samples, time.perf_counter() - started
    return loss.item(), steps, samples, time.perf_counter() - started


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="data")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=0, help="end after so many; 0: at the end of the epochs")
    parser.add_argument("--workers", type=int, default=8)
    arguments = parser.parse_args()
    config = settings.load(HERE / "config.yaml")
    torch.manual_seed(42)
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = KeypointNetwork(config["model"]["channels"]).to(device, memory_format=torch.channels_last)
    options = config["optimizer"]
    optimizer = torch.optim.AdamW(model.parameters(), lr=options["lr"], weight_decay=options["weight_decay"], fused=True)
    loader = DataLoader(StoredBatches(arguments.data), batch_size=None, shuffle=True, num_workers=arguments.workers, pin_memory=device.type == "cuda",
                        prefetch_factor=4, persistent_workers=True)
    loss, steps, samples, seconds = train(torch.compile(model), loader, optimizer, device, arguments.epochs, arguments.steps)
    print(f"steps={steps} loss={loss:.4f} seconds={seconds:.2f} samples_per_second={samples / seconds:.1f}")


if __name__ == "__main__":
    main()
