"""The loader alone, from the page cache to the GPU, beside its limits, reads into pinned memory by as many threads and copies from there to the GPU, and beside torch's DataLoader.

Usage: loader.py FULLWATT [--gigabytes G] [--rounds N] [--commit ID]; 1 when a target is missed. This process runs on half of the CPUs only. All four deliver the same bytes and
take turns, so that what else the machine does meets all of them. Without a GPU batches stay in ordinary memory, and reads are the only limit.
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
AHEAD = 3  # batches that are in memory at once, as the loader has it by itself
SHARE = 0.8  # of the lesser limit
GPU = torch.cuda.is_available()
OURS, READS, COPIES, OTHER = "fullwatt.Loader", f"reads into {'pinned ' * GPU}memory", "copies of pinned memory to the GPU", "torch DataLoader"
KINDS = {"pictures": ((3, 160, 320), "uint8", 64), "windows": ((40, 12), "float32", 1024)}  # shape of a sample, dtype, samples of a batch


def use_half():
    """From now on this process, and all that it starts, has half of the CPUs. Returns how many those are."""
    cpus = sorted(os.sched_getaffinity(0))
    half = cpus[:max(1, len(cpus) // 2)]
    os.sched_setaffinity(0, half)
    return len(half)


def write(folder, shape, dtype, rows):
    """Files in the page cache, since they were just written, which nobody still writes to the disk."""
    for number in range(FILES):
        with open(folder / f"{number}_x.npy", "wb") as file:
            numpy.save(file, numpy.random.default_rng(number).integers(0, 256, (rows, *shape), dtype=numpy.uint8).astype(dtype))
            file.flush()
            os.fsync(file.fileno())


class Rows(torch.utils.data.Dataset):
    """As such a data set is usually written: files that are mapped, a row for a sample."""

    def __init__(self, folder):
        self.files = [numpy.load(path, mmap_mode="c") for path in sorted(folder.glob("*.npy"))]

    def __len__(self):
        return sum(map(len, self.files))

    def __getitem__(self, index):
        rows = len(self.files[0])
        return torch.from_numpy(self.files[index // rows][index % rows])


def delivered(batches):
    """Bytes of all batches, once they are there."""
    total = sum(batch.nbytes for batch in batches)
    if GPU:
        torch.cuda.synchronize()
    return total


def ours(folder, batch, threads):
    """The thread that takes the batches and has them copied needs one of the CPUs."""
    import fullwatt

    loader = fullwatt.Loader(folder, batch_size=batch, shuffle=True, fields={"x": "*_x.npy"}, workers=max(1, threads - 1), prefetch=AHEAD, drop_last=True, device="cuda" if GPU else None)
    return lambda: delivered(fields["x"] for fields in loader)


def data_loader(folder, batch, threads):
    loader = torch.utils.data.DataLoader(Rows(folder), batch, shuffle=True, num_workers=threads, pin_memory=GPU, drop_last=True, persistent_workers=True)
    return lambda: delivered(rows.to("cuda", non_blocking=True) if GPU else rows for rows in loader)


def plain_reads(folder, batch_bytes, threads):
    """Each thread reads its share piece by piece, all into as much memory as the loader has."""
    starts = {path: numpy.load(path, mmap_mode="r").offset for path in sorted(folder.glob("*.npy"))}
    files = {path: os.open(path, os.O_RDONLY) for path in starts}
    blocks = max(threads, (AHEAD + 1) * batch_bytes // PIECE)
    memory = [memoryview(torch.zeros(PIECE, dtype=torch.uint8, pin_memory=GPU).numpy()) for _ in range(blocks)]
    pieces = [(files[path], at) for path, start in starts.items() for at in range(start, path.stat().st_size, PIECE)]
    shares = [list(enumerate(pieces))[thread::threads] for thread in range(threads)]
    done = [0] * threads

    def read(thread):
        done[thread] = sum(os.preadv(file, [memory[number % blocks]], at) for number, (file, at) in shares[thread])

    def turn():
        readers = [threading.Thread(target=read, args=(thread,)) for thread in range(threads)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        return sum(done)

    return turn


def copies(total, batch_bytes):
    """From pinned memory to the GPU; `total` is whole batches."""
    source = [torch.zeros(batch_bytes, dtype=torch.uint8, pin_memory=True) for _ in range(AHEAD)]
    target = [torch.empty_like(block, device="cuda") for block in source]

    def turn():
        for number in range(total // batch_bytes):
            target[number % AHEAD].copy_(source[number % AHEAD], non_blocking=True)
        torch.cuda.synchronize()
        return total

    return turn


def cpu_seconds():
    """Of this process and of the workers that it has now."""
    ticks = 0
    for child in multiprocessing.active_children():
        ticks += sum(map(int, pathlib.Path(f"/proc/{child.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]))
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def timed(turn, total):
    cpu, start = cpu_seconds(), time.perf_counter()
    read = turn()
    seconds = time.perf_counter() - start
    if read != total:
        raise SystemExit(f"{read} of {total} bytes were delivered")
    return {"gb_per_s": read / seconds / 1e9, "cpus": (cpu_seconds() - cpu) / seconds}


def measure(kind, wanted, epochs, threads, rounds):
    """Turns of so many epochs over so many bytes."""
    shape, dtype, batch = KINDS[kind]
    batch_bytes = int(batch * numpy.prod(shape) * numpy.dtype(dtype).itemsize)
    batches = max(1, int(wanted / FILES / batch_bytes))  # of a file, so that no loader has a rest
    with tempfile.TemporaryDirectory() as scratch:
        folder, total = pathlib.Path(scratch), FILES * batches * batch_bytes
        write(folder, shape, dtype, batches * batch)
        turns = {OURS: ours(folder, batch, threads), READS: plain_reads(folder, batch_bytes, threads)}
        if GPU:
            turns[COPIES] = copies(total, batch_bytes)
        turns[OTHER] = data_loader(folder, batch, threads)
        for turn in turns.values():
            turn()  # workers, pages and pinned memory are there from now on
        found = {name: [] for name in turns}
        for _ in range(rounds):
            for name, turn in turns.items():
                found[name].append(timed(lambda turn=turn: sum(turn() for _ in range(epochs)), epochs * total))
        return found


def middle(turns, key="gb_per_s"):
    return statistics.median(turn[key] for turn in turns)


def limit_of(found):
    """(GB/s, name) of the lesser limit."""
    return min((middle(found[name]), name) for name in (READS, COPIES) if name in found)


def goals(results, threads, cpus):
    """(what, reached, target, met)"""
    rows = [("CPUs that this process may use", f"{threads} of {cpus}", "half at most", 2 * threads <= cpus)]
    for kind, found in results.items():
        limit, name = limit_of(found)
        share = middle(found[OURS]) / limit
        what = f"{kind}: of {name}, {limit:.2f} GB/s" + ", the lesser limit" * (COPIES in found)
        rows.append((what, f"{100 * share:.1f} %", f"{100 * SHARE:.0f} %", share >= SHARE))
    return rows


def table(results, head, threads, cpus):
    reached = goals(results, threads, cpus)
    place = "onto the GPU" if GPU else "into ordinary memory (without a GPU there are no copies that limit it)"
    lines = ["# The loader alone", "", head, "",
             f"Made by `bench/loader.py`. `.npy` files in the page cache, shuffled for the loaders, which deliver batches {place}. The process may run on {threads} of {cpus} CPUs: as many "
             f"threads read, as many workers has the DataLoader, and fullwatt.Loader has one thread less, beside the one that takes its batches. All deliver the same bytes. Median of turns that alternate, with the least and the most.", "",
             "| | reached | target | met |", "|---|---|---|---|", *[f"| {what} | {value} | {target} | {'yes' if met else '**no**'} |" for what, value, target, met in reached], "",
             "| samples | | GB/s | least – most | of the limit | CPUs busy |", "|---|---|---|---|---|---|"]  # fmt: skip
    for kind, found in results.items():
        for name, turns in found.items():
            speeds = [turn["gb_per_s"] for turn in turns]
            share = 100 * middle(turns) / limit_of(found)[0]
            lines.append(f"| {kind} | {name} | {middle(turns):.2f} | {min(speeds):.2f} – {max(speeds):.2f} | {share:.0f} % | {middle(turns, 'cpus'):.1f} |")
    return "\n".join(lines) + "\n", not all(met for *_, met in reached)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("fullwatt", type=pathlib.Path)
    parser.add_argument("--gigabytes", type=float, default=2.0, help="of pictures, and of windows in a turn: four epochs of a quarter")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--commit", default="")
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS)
    options = parser.parse_args()
    running.end_on_sigterm()
    os.environ.setdefault("FULLWATT_PROGRAM", str(options.fullwatt))
    sys.path.insert(0, str(ROOT / "python"))
    options.output.mkdir(parents=True, exist_ok=True)
    head, cpus = running.machine(options.commit, options.fullwatt), len(os.sched_getaffinity(0))
    threads = use_half()
    results = {kind: measure(kind, 1e9 * options.gigabytes / epochs, epochs, threads, options.rounds) for kind, epochs in (("pictures", 1), ("windows", 4))}
    text, missed = table(results, head, threads, cpus)
    (options.output / "loader.json").write_text(json.dumps(results, indent=1), encoding="utf-8")
    (options.output / "loader.md").write_text(text, encoding="utf-8")
    print(text)
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
