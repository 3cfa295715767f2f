"""Images are decoded one after the other in the training process itself: its loader has no workers."""

import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from common import Meter


class Photos(Dataset):
    """Compressed pictures of 224 × 224; decoding one takes about a millisecond."""

    def __init__(self, size):
        random = np.random.default_rng(0)
        pictures = [random.integers(0, 16, (3, 224, 224), dtype=np.uint8) for _ in range(16)]
        self.files = [zlib.compress(picture.tobytes(), 1) for picture in pictures]
        self.stride = 224 // size

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        pixels = np.frombuffer(zlib.decompress(self.files[index % len(self.files)]), np.uint8).reshape(3, 224, 224)
        return torch.from_numpy(pixels[:, ::self.stride, ::self.stride].astype(np.float32)), index % 16


def network():
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 16))


def main():
    meter = Meter()
    device = meter.device
    torch.backends.cudnn.benchmark = True
    torch.set_num_threads(meter.pick(torch.get_num_threads(), 1))  # a processor is left for workers
    dataset = Photos(meter.pick(112, 56))
    loader = DataLoader(dataset, batch_size=meter.pick(128, 16), shuffle=True, num_workers=0, pin_memory=device == "cuda", drop_last=True)  # planted
    model = network().to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=device == "cuda")
    for images, labels in loader:
        meter.data()
        images = images.to(device, non_blocking=True, memory_format=torch.channels_last)
        labels = labels.to(device, non_blocking=True)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not meter.step(len(images)):
            break
    meter.finish(loss)


if __name__ == "__main__":
    main()
