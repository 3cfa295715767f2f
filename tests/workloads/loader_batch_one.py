"""Each file holds a whole batch, and a loader of batch size 1 reads, stacks and copies it as if it were one sample."""

import pathlib
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from common import Meter


class BatchFiles(Dataset):
    """Batches of pictures stored as .npy."""

    def __init__(self, folder, samples, size):
        self.paths = [pathlib.Path(folder) / f"batch-{number}.npy" for number in range(8)]
        for path in self.paths:
            np.save(path, np.random.default_rng(0).random((samples, 3, size, size), dtype=np.float32))

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        images = np.load(self.paths[index % len(self.paths)])
        return torch.from_numpy(images), torch.arange(len(images)) % 16


def main(folder):
    meter = Meter()
    device = meter.device
    torch.backends.cudnn.benchmark = True
    dataset = BatchFiles(folder, meter.pick(256, 32), meter.pick(128, 64))
    loader = DataLoader(dataset, batch_size=1, num_workers=meter.pick(2, 1), pin_memory=device == "cuda", persistent_workers=True)  # planted
    model = nn.Sequential(nn.Conv2d(3, 32, 3, stride=2, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 16)).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=device == "cuda")
    for images, labels in loader:
        meter.data()
        images = images[0].to(device, non_blocking=True, memory_format=torch.channels_last)
        labels = labels[0].to(device, non_blocking=True)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not meter.step(len(images)):
            break
    meter.finish(loss)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(scratch)
