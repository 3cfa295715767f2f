"""Makes slider CAPTCHAs with their targets, stored as batches in .npy files. 25,600 samples take 6 GB."""

import argparse
import pathlib
import time

import numpy as np

HEIGHT, WIDTH, STRIDE, PIECE = 160, 320, 4, 40
GRID = (HEIGHT // STRIDE, WIDTH // STRIDE)


def backgrounds(random, count=48):
    """Smooth colours with noise."""
    coarse = random.integers(40, 216, (count, 3, 8, 16)).astype(np.float32)
    fine = np.repeat(np.repeat(coarse, HEIGHT // 8, axis=2), WIDTH // 16, axis=3)
    return np.clip(fine + random.normal(0, 12, fine.shape), 0, 255).astype(np.uint8)


def points(random, count):
    """(y, x) of gap and slider: the same height, the slider on the left."""
    y = random.uniform(PIECE / 2, HEIGHT - PIECE / 2, count)
    slider = random.uniform(PIECE / 2, WIDTH / 4, count)
    gap = random.uniform(WIDTH / 3, WIDTH - PIECE / 2, count)
    return np.stack([np.stack([y, gap], 1), np.stack([y, slider], 1)], 1).astype(np.float32)


def draw(images, places):
    half = PIECE // 2
    for image, ((y, gap), (_, slider)) in zip(images, places.astype(int)):
        piece = image[:, y - half:y + half, gap - half:gap + half]
        image[:, y - half:y + half, slider - half:slider + half] = np.minimum(piece, 215) + 40
        piece //= 2


def targets(places):
    """Heat maps of gap and slider, and the offsets inside the grid's cells."""
    grid = places / STRIDE
    cells = grid.astype(int)
    rows, columns = np.arange(GRID[0])[None, None, :], np.arange(GRID[1])[None, None, :]
    down = np.exp(-((rows - cells[:, :, 0, None]) ** 2) / 4.5)
    across = np.exp(-((columns - cells[:, :, 1, None]) ** 2) / 4.5)
    heatmaps = (down[:, :, :, None] * across[:, :, None, :]).astype(np.float32)
    offsets = np.zeros((len(places), 4, *GRID), np.float32)
    sample = np.arange(len(places))
    for point in range(2):
        y, x = cells[:, point, 0], cells[:, point, 1]
        offsets[sample, 2 * point, y, x] = grid[:, point, 0] - y
        offsets[sample, 2 * point + 1, y, x] = grid[:, point, 1] - x
    return heatmaps, offsets


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("data"))
    parser.add_argument("--count", type=int, default=25_600)
    parser.add_argument("--batch", type=int, default=256)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    scenes = backgrounds(random)
    started = time.perf_counter()
    for number in range(-(-options.count // options.batch)):
        places = points(random, options.batch)
        images = scenes[random.integers(0, len(scenes), options.batch)]
        draw(images, places)
        heatmaps, offsets = targets(places)
        for name, array in (("images", images), ("points", places), ("heatmaps", heatmaps), ("offsets", offsets)):
            np.save(options.output / f"batch{number:04d}_{name}.npy", array)
    print(f"{(number + 1) * options.batch} samples in {time.perf_counter() - started:.1f} s in {options.output}")


if __name__ == "__main__":
    main()
