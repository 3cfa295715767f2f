"""Trains the keypoint network the way people write it first: see README.md for what is wrong."""

import argparse
import pathlib
import random

import numpy as np
import torch

import settings
from engine import TrainingEngine
from network import KeypointNetwork
from npy_loader import make_loader

HERE = pathlib.Path(__file__).resolve().parent


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


def apply_hardware_optimizations(config):
    torch.backends.cudnn.benchmark = config["hardware"]["cudnn_benchmark"]
    torch.backends.cuda.matmul.allow_tf32 = config["hardware"]["allow_tf32"]
    torch.backends.cudnn.allow_tf32 = config["hardware"]["allow_tf32"]


def compile_model(model, config):
    if config["model"]["compile_model"]:
        return torch.compile(model, mode=config["model"]["compile_mode"])
    return model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", default=HERE / "config.yaml")
    parser.add_argument("--data", default="data")
    parser.add_argument("--targets", choices=["recompute", "dataset"], default="recompute")
    parser.add_argument("--epochs", type=int, default=0, help="0: as in the configuration")
    parser.add_argument("--steps", type=int, default=0, help="end after so many; 0: at the end of the epochs")
    arguments = parser.parse_args()
    config = settings.load(arguments.config)
    set_seed(42)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = KeypointNetwork(config["model"]["channels"]).to(device)
    print(f"{sum(parameter.numel() for parameter in model.parameters()) / 1e6:.2f} million parameters on {device}")
    engine = TrainingEngine(model, config, device, arguments.targets)
    engine.train(make_loader(arguments.data, config), arguments.epochs or config["train"]["epochs"], arguments.steps)


if __name__ == "__main__":
    main()
