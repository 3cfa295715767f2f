#pragma once

#include <map>
#include <string>

namespace fullwatt::tests {

inline const std::string kSampleScript = "/home/ada/captcha/train.py";
inline const std::string kSampleTargets = "/home/ada/captcha/targets.py";

/// The user's files of the sample run.
inline std::map<std::string, std::string> sample_sources() {
  return {{kSampleScript, R"py("""Trains the slider-captcha keypoint network."""
import argparse

import torch
import torch.nn.functional as F
import yaml
from torch.utils.data import DataLoader

from model import KeypointNet
from targets import make_targets
from dataset import CaptchaBatches

parser = argparse.ArgumentParser()
parser.add_argument("--config", default="keypoints.yaml")
parser.add_argument("--epochs", type=int, default=20)
arguments = parser.parse_args()

with open(arguments.config) as file:
    config = yaml.safe_load(file)

device = torch.device("cuda")
torch.backends.cudnn.benchmark = False  # reproducible


def setup_hardware():
    """Everything the card can do."""
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.benchmark = True


def build_model():
    model = KeypointNet(width=config["model"]["width"])
    if config["amp"] == "true":
        model = model.half()
    return model.to(device)


dataset = CaptchaBatches(config["data"]["folder"])
loader = DataLoader(dataset, batch_size=1, shuffle=True)

model = build_model()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)


def loss_of(heatmaps, offsets, targets):
    heat = F.binary_cross_entropy_with_logits(heatmaps, targets["heat"])
    shift = F.smooth_l1_loss(offsets * targets["mask"], targets["offset"])
    return heat + 0.1 * shift


def train_epoch(epoch):
    running = 0.0
    for index, batch in enumerate(loader):
        images = batch["image"][0].to(device)
        targets = make_targets(batch["points"][0])
        targets = {name: value.to(device) for name, value in targets.items()}

        heatmaps, offsets = model(images)
        loss = loss_of(heatmaps, offsets, targets)

        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running += loss.item()
        if index % 50 == 0:
            print(f"epoch {epoch} batch {index} loss {running / (index + 1):.4f}")
    return running / len(loader)


def evaluate():
    model.eval()
    errors = []
    with torch.no_grad():
        for batch in validation:
            heatmaps, offsets = model(batch["image"][0].to(device))
            errors.append(distance(heatmaps, offsets, batch["points"][0]))
    model.train()
    return sum(errors) / len(errors)


for epoch in range(arguments.epochs):
    average = train_epoch(epoch)
    print(f"epoch {epoch}: loss {average:.4f}, error {evaluate():.2f} px")
    torch.save(model.state_dict(), f"checkpoints/{epoch:03d}.pt")
)py"},
          {kSampleTargets, R"py(import math

import torch

SIGMA = 2.0


def make_targets(points):
    """Heat maps and offsets of the gap and the slider, point by point."""
    heat = torch.zeros(len(points), 2, 40, 80)
    offset = torch.zeros(len(points), 4, 40, 80)
    mask = torch.zeros(len(points), 4, 40, 80)
    for number, pair in enumerate(points):
        for part, (x, y) in enumerate(pair):
            column, row = int(x / 4), int(y / 4)
            for dy in range(-3, 4):
                for dx in range(-3, 4):
                    value = math.exp(-(dx * dx + dy * dy) / (2 * SIGMA**2))
                    heat[number, part, row + dy, column + dx] = value
            offset[number, 2 * part, row, column] = x / 4 - column
            offset[number, 2 * part + 1, row, column] = y / 4 - row
            mask[number, 2 * part : 2 * part + 2, row, column] = 1
    return {"heat": heat, "offset": offset, "mask": mask}
)py"}};
}

}  // namespace fullwatt::tests
