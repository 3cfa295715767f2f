"""The windows of train.py, cut and normalised once and for all, as .npy files for `fullwatt train`."""

import argparse
import pathlib

import numpy as np
from train import Windows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("lstm-data"))
    parser.add_argument("--length", type=int, default=60)
    parser.add_argument("--count", type=int, default=20_000)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    data = Windows(options.length, options.count)
    windows, targets = zip(*(data[index] for index in range(len(data))))
    np.save(options.output / "windows.npy", np.stack([window.numpy() for window in windows]))
    np.save(options.output / "targets.npy", np.stack([target.numpy() for target in targets]))
    print(f"{len(data)} windows of {options.length} in {options.output}")


if __name__ == "__main__":
    main()
