"""The training loop."""

import math
import time

import numpy as np
import torch

from network import focal_loss, offset_loss

GRID, STRIDE, REACH = (40, 80), 4, 6


class TrainingEngine:
    def __init__(self, model, config, device, targets):
        self.model, self.device, self.targets = model, device, targets
        self.use_amp = config["train"].get("amp", "none") == "true"
        options = config["optimizer"]
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=options["lr"], weight_decay=options["weight_decay"])
        self.history = {"loss": [], "gap_error": [], "slider_error": []}

    def generate_targets(self, points):
        """Heat maps and offsets, pixel by pixel."""
        heatmaps = np.zeros((len(points), 2, *GRID), np.float32)
        offsets = np.zeros((len(points), 4, *GRID), np.float32)
        for sample, places in enumerate(points):
            for point, (y, x) in enumerate(places):
                row, column = int(y / STRIDE), int(x / STRIDE)
                for i in range(max(0, row - REACH), min(GRID[0], row + REACH + 1)):
                    for j in range(max(0, column - REACH), min(GRID[1], column + REACH + 1)):
                        heatmaps[sample, point, i, j] = math.exp(-((i - row) ** 2 + (j - column) ** 2) / 4.5)
                offsets[sample, 2 * point, row, column] = y / STRIDE - row
                offsets[sample, 2 * point + 1, row, column] = x / STRIDE - column
        return torch.from_numpy(heatmaps), torch.from_numpy(offsets)

    def batch_to_device(self, batch):
        images = batch["images"][0].to(self.device)
        points = batch["points"][0]
        if self.targets == "recompute":
            heatmaps, offsets = self.generate_targets(points.tolist())
        else:
            heatmaps, offsets = batch["heatmaps"][0], batch["offsets"][0]
        return images, points.to(self.device), heatmaps.to(self.device), offsets.to(self.device)

    def errors(self, heatmaps, points):
        """Mean distance of gap and slider in pixels."""
        best = heatmaps.flatten(2).argmax(2)
        found = torch.stack([best // GRID[1], best % GRID[1]], 2) * STRIDE
        return (found - points).norm(dim=2).mean(0)

    def train_batch(self, batch):
        images, points, heatmaps, offsets = self.batch_to_device(batch)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.use_amp):
            predicted, moved = self.model(images)
        loss = focal_loss(predicted.float(), heatmaps) + offset_loss(moved.float(), offsets, heatmaps)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        distance = self.errors(predicted.detach(), points)
        self.history["loss"].append(loss.item())
        self.history["gap_error"].append(distance[0].item())
        self.history["slider_error"].append(distance[1].item())
        return len(images)

    def train(self, loader, epochs, most_steps):
        samples, steps, started = 0, 0, time.perf_counter()
        for epoch in range(epochs):
            for batch in loader:
                samples += self.train_batch(batch)
                steps += 1
                if steps == most_steps:
                    break
            print(f"epoch {epoch}: loss {self.history['loss'][-1]:.4f}, gap {self.history['gap_error'][-1]:.1f} px", flush=True)
            if steps == most_steps:
                break
        seconds = time.perf_counter() - started
        print(f"steps={steps} seconds={seconds:.2f} samples_per_second={samples / seconds:.1f}")
