"""Reads batches that lie in .npy files."""

import pathlib

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class BatchFiles(Dataset):
    """Each item is a whole batch, as it was stored."""

    def __init__(self, folder):
        self.files = sorted(pathlib.Path(folder).glob("batch*_images.npy"))
        if not self.files:
            raise FileNotFoundError(f"no batches in {folder}; make some with generate.py")

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        path = str(self.files[index])
        sample = {name: np.load(path.replace("images", name)) for name in ("points", "heatmaps", "offsets")}
        sample["images"] = np.load(path).astype(np.float32) / 255
        return {name: torch.from_numpy(array) for name, array in sample.items()}


def make_loader(folder, config):
    dataset = BatchFiles(folder)
    return DataLoader(dataset, batch_size=1, shuffle=True, num_workers=2, pin_memory=config["train"]["pin_memory"])
