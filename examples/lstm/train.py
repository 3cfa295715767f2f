"""A grid search over LSTM forecasters, written the way people write it first: see README.md for what is wrong."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH_SIZE = 128
NUM_WORKERS = 4
FEATURES = 12


class Windows(Dataset):
    """Windows of a long series, cut and normalised one by one."""

    def __init__(self, length, count=20_000):
        steps = np.arange(count + length + 1)[:, None] / np.arange(5, 5 + FEATURES)
        self.series = np.sin(steps) + np.random.default_rng(0).normal(0, 0.1, steps.shape)
        self.length, self.count = length, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        window = self.series[index:index + self.length]
        mean, deviation = window.mean(0), window.std(0) + 1e-6
        target = (self.series[index + self.length] - mean) / deviation
        return torch.tensor((window - mean) / deviation, dtype=torch.float32), torch.tensor(target, dtype=torch.float32)


class Forecaster(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.lstm = nn.LSTM(FEATURES, hidden, num_layers=2, batch_first=True, dropout=0.1)
        self.head = nn.Linear(hidden, FEATURES)

    def forward(self, windows):
        outputs, _ = self.lstm(windows)
        return self.head(outputs[:, -1])


def train_epoch(model, loader, optimizer, device, left):
    """Returns the losses, the predictions of all batches and the number of steps."""
    losses, predictions, targets = [], [], []
    model.train()
    for windows, target in loader:
        windows = windows.to(device)
        target = target.to(device)
        optimizer.zero_grad(set_to_none=False)
        outputs = model(windows)
        loss = nn.functional.mse_loss(outputs, target)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        predictions.append(outputs.detach().cpu().numpy())
        targets.append(target.cpu().numpy())
        if len(losses) == left:
            break
    return losses, np.concatenate(predictions), np.concatenate(targets)


def train_one(length, hidden, arguments, device):
    torch.manual_seed(0)
    loader = DataLoader(Windows(length), batch_size=BATCH_SIZE, shuffle=True, num_workers=NUM_WORKERS, drop_last=True)
    model = Forecaster(hidden).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    steps, started = 0, time.perf_counter()
    for epoch in range(arguments.epochs):
        losses, predictions, targets = train_epoch(model, loader, optimizer, device, arguments.steps - steps if arguments.steps else 0)
        steps += len(losses)
        error = np.abs(predictions - targets).mean()
        print(f"length {length}, hidden {hidden}, epoch {epoch}: loss {np.mean(losses):.4f}, error {error:.4f}", flush=True)
        if steps == arguments.steps:
            break
    return steps, time.perf_counter() - started


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lengths", type=int, nargs="+", default=[30, 60, 90])
    parser.add_argument("--hidden", type=int, nargs="+", default=[64, 128, 256, 512])
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, default=0, help="of each combination; 0: all of its epochs")
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    steps, seconds = 0, 0.0
    for length in arguments.lengths:
        for hidden in arguments.hidden:
            done, took = train_one(length, hidden, arguments, device)
            steps, seconds = steps + done, seconds + took
    print(f"steps={steps} seconds={seconds:.2f} samples_per_second={steps * BATCH_SIZE / seconds:.1f}")


if __name__ == "__main__":
    main()
