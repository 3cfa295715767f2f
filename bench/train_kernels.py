"""What the GPU's time of a keypoint step is spent on: by PyTorch, by torch.compile, and by fullwatt train with and without its fused kernels.

Usage: train_kernels.py FULLWATT FULLWATT_TRAIN --keypoint DATA [--seconds S] [--commit ID]. Each way runs under `fullwatt run`, whose windows record every kernel.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import running

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS = HERE / "results"
BATCH = 256
LONGEST_S = 180.0  # of a program that ends by itself
OPTIMISER = "optimiser"
COPIES = "batches to the GPU"  # on a stream of their own, beside the kernels
# The first that a name matches.
GROUPS = {
    COPIES: r"^copy to the GPU$",
    OPTIMISER: r"multi_tensor_apply.*Adam|FusedAdam",
    "batch norm, ReLU, residual": r"batch_norm|threshold|clamp|relu",
    "convolutions": r"xmma|cutlass|convolve|cudnn|[iI]mplicit|SplitK|cask|nvjet|gemm",
    "casts and copies": r"copy|^fill$|memset|memcpy",
    "sums": r"reduce_kernel|triton_red",
    "other": r"",
}


def group_of(name):
    return next(group for group, pattern in GROUPS.items() if re.search(pattern, name))


def ways(options):
    limits = [sys.executable, HERE / "train_limits.py"]
    given = ["keypoint", "--data", options.keypoint, "--batch", BATCH, "--seconds", options.seconds]
    ours = [options.program, ROOT / "examples" / "keypoint.yaml", "--anew", "--set", f"data.folder={options.keypoint}", "--set", f"train.batch_size={BATCH}",
            "--set", "train.epochs=1000000", "--set", "output.every_epochs=1000000", "--set", "output.folder=out"]  # fmt: skip
    return {"PyTorch": [*limits, "eager", *given], "torch.compile": [*limits, "compiled", *given], "ours": ours, "ours, nothing fused": [*ours, "--set", "train.compile_model=false"]}


def trace_of(options, command):
    """All that the windows of a run recorded."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = pathlib.Path(name)
        environment = {**os.environ, "FULLWATT_HOME": str(folder / "home")}
        process = subprocess.Popen([options.fullwatt, "run", "--quiet", "--", *map(str, command)], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            process.wait(timeout=options.start_seconds + options.seconds if options.program in command else LONGEST_S)
        except subprocess.TimeoutExpired:
            process.terminate()  # ours would go on for ever
            process.wait(timeout=60)
        trace = folder / "trace.json"
        subprocess.run([options.fullwatt, "report", "--perfetto", trace], env=environment, stdout=subprocess.DEVNULL, check=True)
        return json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]


def counted(events):
    """Milliseconds and kernels by group, and the steps of all windows together."""
    gpus = {event["pid"] for event in events if event["ph"] == "M" and event["name"] == "process_name" and event["args"]["name"].startswith("GPU ")}
    sums = {group: [0.0, 0] for group in GROUPS}
    for event in events:
        if event["ph"] == "X" and event["pid"] in gpus:
            entry = sums[group_of(event["name"])]
            entry[0] += event["dur"] / 1e3
            entry[1] += 1
    steps = sum(event.get("args", {}).get("steps", 0) for event in events if event["ph"] == "X" and event["name"].startswith("recorded: "))
    return {"sums": sums, "steps": steps}


def per_step(found):
    """Milliseconds of a step by group."""
    for name, way in found.items():
        if not way["steps"] or not way["sums"][OPTIMISER][1]:
            raise SystemExit(f"{name}: {way['steps']} steps were recorded, with {way['sums'][OPTIMISER][1]} kernels of the optimiser")
    return {name: {group: ms / way["steps"] for group, (ms, _) in way["sums"].items()} for name, way in found.items()}


def text_of(table, head):
    lines = ["# The GPU's time of a keypoint step", "", head, "",
             f"Made by `bench/train_kernels.py`. Milliseconds of kernels in one step of {BATCH} pictures in bfloat16, channels-last; samples/s are what the GPU could do if it never waited. The first two have their samples on the GPU already; our batches come from disk, and are copied while kernels run.", "",
             f"| | {' | '.join(table)} |", f"|---|{'---|' * len(table)}"]  # fmt: skip
    lines += [f"| {group} | {' | '.join(f'{row[group]:.2f}' for row in table.values())} |" for group in GROUPS]
    sums = [sum(ms for group, ms in row.items() if group != COPIES) for row in table.values()]
    lines += [f"| all kernels | {' | '.join(f'{ms:.2f}' for ms in sums)} |", f"| samples/s at most | {' | '.join(f'{1e3 * BATCH / ms:,.0f}' for ms in sums)} |"]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("fullwatt", type=pathlib.Path)
    parser.add_argument("program", type=pathlib.Path, help="fullwatt-train")
    parser.add_argument("--keypoint", type=pathlib.Path, required=True, help="made by examples/keypoint/generate.py")
    parser.add_argument("--seconds", type=float, default=6.0, help="of the steady state")
    parser.add_argument("--start-seconds", type=float, default=14.0, help="until it is reached by fullwatt train")
    parser.add_argument("--commit", default="")
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS)
    options = parser.parse_args()
    options.fullwatt, options.program, options.keypoint = options.fullwatt.resolve(), options.program.resolve(), options.keypoint.resolve()
    found = {}
    for name, command in ways(options).items():
        found[name] = counted(trace_of(options, command))
        print(f"{name}: {found[name]}", flush=True)
    text = text_of(per_step(found), running.machine(options.commit, options.fullwatt))
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "train_kernels.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
