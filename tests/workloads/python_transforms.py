"""Each picture of the batch is normalised and cropped for itself, on the CPU, in the training loop."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from common import Meter

BORDER = 8


def crop_and_normalise(image):
    top, left = torch.randint(0, BORDER, (2,)).tolist()  # planted
    height, width = image.shape[1] - BORDER, image.shape[2] - BORDER  # planted
    part = image[:, top:top + height, left:left + width]  # planted
    return (part - part.mean()) / (part.std() + 1e-6)  # planted


class Classifier(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, width, 3, stride=2), nn.ReLU(), nn.Conv2d(width, width, 3, stride=2), nn.ReLU())
        self.head = nn.Linear(width, 16)

    def forward(self, images):
        return self.head(self.features(images).mean((2, 3)))


def main():
    meter = Meter()
    device = meter.device
    torch.backends.cudnn.benchmark = True
    batch = meter.pick(256, 128)
    size = meter.pick(64, 24)  # small on a CPU, so that its one worker has far less to do than the loop
    data = TensorDataset(torch.randn(16 * batch, 3, size, size), torch.arange(16 * batch) % 16)
    loader = DataLoader(data, batch, num_workers=meter.pick(4, 1), pin_memory=device == "cuda", persistent_workers=True)
    model = Classifier(meter.pick(128, 4)).to(device, memory_format=torch.channels_last)
    staging = [torch.empty(batch, 3, size - BORDER, size - BORDER, pin_memory=device == "cuda") for _ in range(2)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=device == "cuda")
    step, go_on = 0, True
    while go_on:
        for images, labels in loader:
            started = time.perf_counter()
            images = torch.stack([crop_and_normalise(image) for image in images], out=staging[step % 2])  # planted
            meter.planted(started)
            images = images.to(device, non_blocking=True, memory_format=torch.channels_last)
            labels = labels.to(device, non_blocking=True)
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            go_on = meter.step(len(images))
            step += 1
            if not go_on:
                break
    meter.finish(loss)


if __name__ == "__main__":
    main()
