"""What `fullwatt train` reaches beside PyTorch, on the same data from disk, which lie in the page cache: speed, precision, and whether it stays so over a long training.

Usage: train.py FULLWATT_TRAIN --keypoint DATA --lstm DATA [--parts keypoint lstm precision resnet50 gpt2 endurance…] [--budget SECONDS] [--small] [--merge | --resume]
[--commit ID]; 1 when a target of the parts is missed or was not measured. DATA are made by examples/keypoint/generate.py and examples/lstm/windows.py, of the sizes that the targets are for.
The ways that targets compare take turns; the others run once. Samples/s are those of the steady state. Endurance takes some 3 minutes on an H200: 2 for
10,000 steps of keypoint, and less than one for 40,000 of the LSTM, whose steps are so short that a machine's moods would show in fewer.
"""

import argparse
import functools
import itertools
import json
import os
import pathlib
import tempfile

import numpy as np
import running
import torch
import train_runs
import train_table

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
EXAMPLES = ROOT / "examples"
TURNS = {"ours", "ours_fp32", "ours_bf16", "eager", "graph"}
LSTM_BATCH, LSTM_HIDDEN = 128, 64
CACHE_GB = 100  # more than any of the data
NOISE_BATCHES = 16


class Size:
    """What differs between a GPU and a CPU on which this is only tried."""

    def __init__(self, small):
        self.log_every = {"keypoint": 1, "lstm": 1, "resnet50": 1, "gpt2": 1} if small else {"keypoint": 10, "lstm": 50, "resnet50": 4, "gpt2": 4}
        self.expert = {"keypoint": ["--steps", 3], "lstm": ["--epochs", 1]} if small else {"keypoint": ["--epochs", 3], "lstm": ["--epochs", 6]}
        self.epochs = {"keypoint": 4, "lstm": 4} if small else {"keypoint": 2, "lstm": 20}
        self.steps = {"lstm": 40, "keypoint": 16} if small else {"lstm": 4 * train_table.STEPS, "keypoint": train_table.STEPS}
        self.resnet50 = {"batch": 2, "side": 64} if small else {"batch": 256, "side": 224}
        self.gpt2 = {"batch": 2, "context": 32, "layers": 1} if small else {"batch": 32, "context": 1024, "layers": 12}


class Example:
    """One of the two examples: its configuration and its data."""

    def __init__(self, options, name):
        self.name, self.config = name, EXAMPLES / f"{name}.yaml"
        self.folder = {"keypoint": options.keypoint, "lstm": options.lstm}[name]
        files = [np.load(path, mmap_mode="r") for path in sorted(self.folder.glob({"keypoint": "*images.npy", "lstm": "*windows.npy"}[name]))]
        if not files:
            raise ValueError(f"no samples in {self.folder}")
        self.samples = sum(map(len, files))
        self.batch = len(files[0]) if name == "keypoint" else LSTM_BATCH  # the expert's program takes whole files
        self.settings = {"data.folder": self.folder, "train.batch_size": self.batch, "train.log_every": options.size.log_every[name]}
        if name == "lstm":
            self.settings["model.hidden"] = LSTM_HIDDEN
        self.data = self.described(files)
        if self.data != train_table.DATA[name] and not options.small:
            raise ValueError(f"{self.folder} has {self.data}, and the targets are for {train_table.DATA[name]} (with --small it is only tried)")

    def described(self, files):
        """As train_table.DATA has it."""
        if self.name == "lstm":
            return train_table.batches_of(self.batch, files[0].shape[1:]) + f", hidden {LSTM_HIDDEN}"
        return " or ".join(sorted({train_table.batches_of(len(file), file.shape[1:]) for file in files}))

    def epochs_of(self, steps):
        return -(-steps // max(1, self.samples // self.batch))


def read_into_memory(folder):
    """So that all ways find the files in the page cache."""
    for path in folder.glob("*.npy"):
        with open(path, "rb") as file:
            while file.read(1 << 24):
                pass


def attempted(what, run, row):
    """What a run returns; None where it failed or cannot be here, with the reason in the row."""
    try:
        return run()
    except running.Skipped as reason:
        row["notes"].append(str(reason))
        print(f"{what}: {reason}", flush=True)
    except running.Failed as reason:
        row["failures"].append(str(reason))
        print(f"{what}: failed, {reason}", flush=True)
    return None


def take_turns(options, part, row, data, ways):
    """Each way once, and those of TURNS in every round, which goes back the way that the one before came. Stops after each one, so that it can be stored."""
    row["data"] = data
    measured = row.setdefault("ways", {})
    for number in range(options.rounds):
        names = [name for name in ways if number == 0 or name in TURNS]
        for name in names[::-1] if number % 2 else names:
            way = measured.setdefault(name, {"rates": [], "notes": [], "failures": [], "precision": None})
            if len(way["rates"]) > number:  # by an earlier call
                continue
            way["notes"] = [note for note in way["notes"] if note != train_runs.NO_TIME]
            found = attempted(f"{part} {name}", ways[name], way)
            if found:
                way["rates"].append(found["rate"])
                way["notes"] += found.get("notes", [])
                way["precision"] = found.get("precision")
                print(f"{part} {name}: {found['rate']:,.1f} samples/s", flush=True)
            yield


def ours(options, example, **changed):
    """`changed` are such as train_amp."""
    settings = {name.replace("_", ".", 1): value for name, value in changed.items()}
    return functools.partial(train_runs.ours, options, example.config, {**example.settings, **settings})


def limit(options, example, way, *more):
    return functools.partial(train_runs.limit, options, way, example.name, example.folder, example.batch, *more)


def expert(options, example, *more):
    workers = max(1, min(8, len(os.sched_getaffinity(0)) - 1))
    return functools.partial(train_runs.python, options, [EXAMPLES / example.name / "expert.py", "--workers", workers, *more, *options.size.expert[example.name]])


def without_gpu():
    raise running.Skipped("there is no GPU")


def only_with_gpu(options, example):
    ways = {"ours_cached": ours(options, example, data_device_cache_gb=CACHE_GB), "ours_no_graph": ours(options, example, train_compile_model="false"),
            "ours_cpu": ours(options, example, hardware_device="cpu", train_log_every=1)}
    return ways if options.gpu else dict.fromkeys(ways, without_gpu)


def keypoint(options, row):
    example = options.examples["keypoint"]
    ways = {"ours": ours(options, example), "eager": limit(options, example, "eager"), "graph": limit(options, example, "graph"),
            "ours_fp32": ours(options, example, train_amp="fp32"), **only_with_gpu(options, example), "plain": limit(options, example, "plain"),
            "expert": expert(options, example, "--data", example.folder), "compiled": limit(options, example, "compiled"),
            "compiled_graph": limit(options, example, "compiled_graph")}
    return take_turns(options, "keypoint", row, example.data, ways)


def lstm(options, row):
    example = options.examples["lstm"]
    fp32, none = ["--precision", "fp32"], ["--dropout", "0"]
    ways = {"ours": ours(options, example), "ours_bf16": ours(options, example, train_amp="bf16"), "eager": limit(options, example, "eager"),
            "graph": limit(options, example, "graph"), "eager_fp32": limit(options, example, "eager", *fp32), "graph_fp32": limit(options, example, "graph", *fp32),
            "ours_0": ours(options, example, model_dropout=0), "ours_bf16_0": ours(options, example, model_dropout=0, train_amp="bf16"),
            "graph_0": limit(options, example, "graph", *none), "graph_fp32_0": limit(options, example, "graph", *none, *fp32),
            **only_with_gpu(options, example), "plain": limit(options, example, "plain"), "expert": expert(options, example),
            "compiled": limit(options, example, "compiled")}
    return take_turns(options, "lstm", row, example.data, ways)


def precision(options, rows):
    """The same training from several seeds, in both precisions by turns."""
    for name in ("keypoint", "lstm"):
        example = options.examples[name]
        epochs = options.size.epochs[name]
        row = rows.setdefault(name, {"data": example.data, "epochs": epochs, "taken": None, "fp32": [], "bf16": [], "notes": [], "failures": []})
        if row["taken"] is None:
            found = attempted(f"precision {name}", ours(options, example, train_amp="true"), row)
            row["taken"] = found and found["precision"]
            yield
        for seed, kind in itertools.product(range(train_table.SEEDS), ("fp32", "bf16")):
            if len(row[kind]) > seed:  # by an earlier call
                continue
            settings = {**example.settings, "train.epochs": epochs, "train.amp": kind, "train.seed": seed}
            found = attempted(f"precision {name} {kind}", functools.partial(train_runs.converged, options, example.config, settings), row)
            if found:
                row["notes"] += found.pop("notes")
                row[kind].append(found)
                print(f"precision {name} {kind}: loss {found['loss']:.5g}, {found['rate']:,.0f} samples/s", flush=True)
            yield


def beside_library(options, row, name, batch, arrays, settings, more=()):
    """A model on noise, which is enough to be fast or slow on."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        for field, array in arrays.items():
            np.save(folder / f"{field}.npy", array)
        config = folder / "config.yaml"
        config.write_text(f"model: {{name: {name}}}\n", encoding="utf-8")
        given = {"data.folder": folder, "train.batch_size": batch, "train.log_every": options.size.log_every[name], **settings}
        ways = {"ours": functools.partial(train_runs.ours, options, config, given),
                **{way: functools.partial(train_runs.limit, options, way, name, folder, batch, *more) for way in ("eager", "compiled", "compiled_graph")}}
        yield from take_turns(options, name, row, train_table.batches_of(batch, next(iter(arrays.values())).shape[1:]), ways)


def resnet50(options, row):
    size, random = options.size.resnet50, np.random.default_rng(0)
    count = NOISE_BATCHES * size["batch"]
    arrays = {"images": random.integers(0, 256, (count, 3, size["side"], size["side"]), np.uint8), "labels": random.integers(0, 1000, count)}
    return beside_library(options, row, "resnet50", size["batch"], arrays, {})


def gpt2(options, row):
    size = options.size.gpt2
    tokens = np.random.default_rng(0).integers(0, 50257, (NOISE_BATCHES * size["batch"], size["context"] + 1))
    settings = {"model.layers": size["layers"], "model.context": size["context"]}
    return beside_library(options, row, "gpt2", size["batch"], {"tokens": tokens}, settings, ["--layers", size["layers"]])


def endurance(options, rows):
    for name, steps in options.size.steps.items():
        if rows.get(name, {}).get("lines"):  # by an earlier call
            continue
        example = options.examples[name]
        epochs = example.epochs_of(steps)
        settings = {**example.settings, "train.epochs": epochs, "output.every_epochs": max(1, epochs // train_table.CHECKPOINTS)}
        row = rows[name] = {"data": example.data, "notes": [], "failures": [], "memory": [], "lines": [], "checkpoints": 0}
        row.update(attempted(f"endurance {name}", functools.partial(train_runs.endured, options, example.config, settings), row) or {})
        print(f"endurance {name}: {len(row['lines'])} lines, {len(row['memory'])} looks at the memory", flush=True)
        yield


PARTS = {"keypoint": keypoint, "lstm": lstm, "precision": precision, "resnet50": resnet50, "gpt2": gpt2, "endurance": endurance}
NEEDS = {"keypoint": ["keypoint"], "lstm": ["lstm"], "precision": ["keypoint", "lstm"], "endurance": ["keypoint", "lstm"]}
MADE_BY = {"keypoint": "examples/keypoint/generate.py", "lstm": "examples/lstm/windows.py"}


def parsed():
    folder = lambda text: pathlib.Path(text).resolve()  # noqa: E731
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=folder, help="fullwatt-train")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--keypoint", type=folder, default=folder("keypoint-data"), help="folder with the keypoint data, in files of one batch of 256 each")
    parser.add_argument("--lstm", type=folder, default=folder("lstm-data"), help="folder with the windows of 60")
    parser.add_argument("--seconds", type=float, default=3.0, help="of the steady state, in each run")
    parser.add_argument("--limit", type=float, default=120.0, help=f"seconds after which a run is ended; {train_runs.LONG} times as many for a long training")
    parser.add_argument("--budget", type=float, default=0.0, help="seconds for all of them; what finds no time is told")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--small", action="store_true", help="of a size for CPUs, to try it")
    parser.add_argument("--merge", action="store_true", help="keep the parts of earlier calls")
    parser.add_argument("--resume", action="store_true", help="the same, and measure of these parts only what no earlier call has")
    parser.add_argument("--commit", default="")
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS)
    options = parser.parse_args()
    options.gpu, options.size = torch.cuda.is_available(), Size(options.small)
    options.examples = {name: example_of(parser, options, name) for name in MADE_BY if any(name in NEEDS.get(part, []) for part in options.parts)}
    options.clock = train_runs.Clock(options.budget, options.limit)
    return options


def example_of(parser, options, name):
    try:
        return Example(options, name)
    except (OSError, ValueError) as reason:
        parser.error(f"{reason}; make what is wanted with {MADE_BY[name]}, and name it with --{name}")


def measure(options):
    options.output.mkdir(parents=True, exist_ok=True)
    stored = options.output / "train.json"
    rows = json.loads(stored.read_text(encoding="utf-8")) if (options.merge or options.resume) and stored.exists() else {}
    head = running.machine(options.commit, options.program)
    for example in options.examples.values():
        read_into_memory(example.folder)
    for name in options.parts:
        heads = rows.setdefault("heads", {})  # of each part: machine, versions and commit, or several where it was resumed
        if not options.resume:
            rows.pop(name, None)
            heads.pop(name, None)
        for _ in PARTS[name](options, rows.setdefault(name, {})):
            heads[name] = list(dict.fromkeys([*heads.get(name, []), head]))
            stored.write_text(json.dumps(rows, indent=1), encoding="utf-8")
            (options.output / "train.md").write_text(train_table.table(rows)[0], encoding="utf-8")
    text, missed = train_table.table(rows)
    print(text, flush=True)
    return 1 if missed else 0


def main():
    running.end_on_sigterm()
    options = parsed()
    with tempfile.TemporaryDirectory() as cache:  # what torch.compile makes
        os.environ.update(TORCHINDUCTOR_CACHE_DIR=f"{cache}/inductor", TRITON_CACHE_DIR=f"{cache}/triton")
        return measure(options)


if __name__ == "__main__":
    raise SystemExit(main())
