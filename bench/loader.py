"""The loader alone, from the page cache, with at most half of the CPUs: beside plain reads by as many threads, copies to the GPU where there is one, and torch's DataLoader.

Usage: loader.py FULLWATT [--gigabytes G] [--rounds N] [--commit ID]. The four take turns, so that what else the machine does meets all of them.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import statistics
import sys
import tempfile
import threading
import time

import numpy
import running
import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
FILES = 4
PIECE = 2 << 20  # bytes of a plain read, as large as the loader's own
AHEAD = 3  # batches that are in memory at once
KINDS = {"pictures": ((3, 160, 320), "uint8", 64), "windows": ((40, 12), "float32", 1024)}  # shape of a sample, dtype, samples of a batch


def write(folder, shape, dtype, total):
    """Files in the page cache, since they were just written; the bytes of all samples."""
    rows = int(total / FILES / (numpy.prod(shape) * numpy.dtype(dtype).itemsize))
    for number in range(FILES):
        numpy.save(folder / f"{number}_x.npy", numpy.random.default_rng(number).integers(0, 256, (rows, *shape), dtype=numpy.uint8).astype(dtype))


class Rows(torch.utils.data.Dataset):
    """As such a data set is usually written: files that are mapped, a row for a sample."""

    def __init__(self, folder):
        self.files = [numpy.load(path, mmap_mode="c") for path in sorted(folder.glob("*.npy"))]

    def __len__(self):
        return sum(map(len, self.files))

    def __getitem__(self, index):
        rows = len(self.files[0])
        return torch.from_numpy(self.files[index // rows][index % rows])


def through(batches):
    """Bytes of all batches."""
    return sum(batch.nbytes for batch in batches)


def ours(folder, batch, threads):
    import fullwatt

    loader = fullwatt.Loader(folder, batch_size=batch, shuffle=True, fields={"x": "*_x.npy"}, workers=threads, prefetch=AHEAD, pin_memory=torch.cuda.is_available(), drop_last=True)
    return lambda: through(fields["x"] for fields in loader)


def data_loader(folder, batch, threads):
    loader = torch.utils.data.DataLoader(Rows(folder), batch, shuffle=True, num_workers=threads, pin_memory=torch.cuda.is_available(), drop_last=True, persistent_workers=True)
    return lambda: through(loader)


def plain_reads(folder, batch_bytes, threads):
    """Each thread reads its share piece by piece, all into as much memory as the loader has."""
    pieces = [(path, at) for path in sorted(folder.glob("*.npy")) for at in range(0, path.stat().st_size, PIECE)]
    files = {path: os.open(path, os.O_RDONLY) for path, _ in pieces}
    blocks = max(threads, (AHEAD + 1) * batch_bytes // PIECE)
    memory = [memoryview(torch.zeros(PIECE, dtype=torch.uint8, pin_memory=torch.cuda.is_available()).numpy()) for _ in range(blocks)]
    done = [0] * threads

    def read(thread):
        done[thread] = sum(os.preadv(files[path], [memory[number % blocks]], at) for number, (path, at) in list(enumerate(pieces))[thread::threads])

    def turn():
        readers = [threading.Thread(target=read, args=(thread,)) for thread in range(threads)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        return sum(done)

    return turn


def copies(total, batch_bytes):
    """From pinned memory to the GPU."""
    source = [torch.zeros(batch_bytes, dtype=torch.uint8, pin_memory=True) for _ in range(AHEAD)]
    target = [torch.empty_like(block, device="cuda") for block in source]

    def turn():
        count = int(total / batch_bytes)
        for number in range(count):
            target[number % AHEAD].copy_(source[number % AHEAD], non_blocking=True)
        torch.cuda.synchronize()
        return count * batch_bytes

    return turn


def cpu_seconds():
    """Of this process and of the workers that it has now."""
    ticks = 0
    for child in multiprocessing.active_children():
        ticks += sum(map(int, pathlib.Path(f"/proc/{child.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]))
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def timed(turn):
    cpu, start = cpu_seconds(), time.perf_counter()
    read = turn()
    seconds = time.perf_counter() - start
    return {"gb_per_s": read / seconds / 1e9, "cpus": (cpu_seconds() - cpu) / seconds}


def measure(kind, total, threads, rounds):
    shape, dtype, batch = KINDS[kind]
    batch_bytes = int(batch * numpy.prod(shape) * numpy.dtype(dtype).itemsize)
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        write(folder, shape, dtype, total)
        turns = {"fullwatt.Loader": ours(folder, batch, threads), "plain reads": plain_reads(folder, batch_bytes, threads)}
        if torch.cuda.is_available():
            turns["copies to the GPU"] = copies(total, batch_bytes)
        turns["torch DataLoader"] = data_loader(folder, batch, threads)
        for turn in turns.values():
            turn()  # workers, pages and pinned memory are there from now on
        found = {name: [] for name in turns}
        for _ in range(rounds):
            for name, turn in turns.items():
                found[name].append(timed(turn))
        return found


def table(results, head, threads):
    lines = ["# The loader alone", "", head, "",
             f"`.npy` files in the page cache, shuffled for the loaders, {threads} thread{'s' * (threads != 1)} or worker{'s' * (threads != 1)} of {len(os.sched_getaffinity(0))} CPUs. Median of turns that alternate, with the "
             "least and the most.", "", "| samples | reader | GB/s | least – most | of plain reads | CPUs busy |", "|---|---|---|---|---|---|"]  # fmt: skip
    for kind, found in results.items():
        reads = statistics.median(turn["gb_per_s"] for turn in found["plain reads"])
        for name, turns in found.items():
            speeds = [turn["gb_per_s"] for turn in turns]
            speed, cpus = statistics.median(speeds), statistics.median(turn["cpus"] for turn in turns)
            lines.append(f"| {kind} | {name} | {speed:.2f} | {min(speeds):.2f} – {max(speeds):.2f} | {100 * speed / reads:.0f} % | {cpus:.1f} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("fullwatt", type=pathlib.Path)
    parser.add_argument("--gigabytes", type=float, default=2.0, help="of pictures; windows are a quarter of it")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--commit", default="")
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS)
    options = parser.parse_args()
    running.end_on_sigterm()
    os.environ.setdefault("FULLWATT_PROGRAM", str(options.fullwatt))
    sys.path.insert(0, str(ROOT / "python"))
    options.output.mkdir(parents=True, exist_ok=True)
    threads = max(1, len(os.sched_getaffinity(0)) // 2)
    results = {kind: measure(kind, 1e9 * options.gigabytes / share, threads, options.rounds) for kind, share in (("pictures", 1), ("windows", 4))}
    text = table(results, running.machine(options.commit, options.fullwatt), threads)
    (options.output / "loader.json").write_text(json.dumps(results, indent=1), encoding="utf-8")
    (options.output / "loader.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
