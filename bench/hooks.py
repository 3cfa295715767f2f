"""What the hooks of a steady step cost: they are switched on and off in turn within one training under `fullwatt run`, no window open.

Usage: hooks.py FULLWATT [--workloads NAME…] [--seconds S] [--repeats N] [--merge] [--commit ID]. The workload `shortest` is a training of very short
steps, the others are those of tests/workloads. Ends with 1 when a target is missed.
"""

import argparse
import json
import os
import pathlib
import runpy
import statistics
import subprocess
import sys
import tempfile
import time

import running
import truth

RESULTS = pathlib.Path(__file__).resolve().parent / "results"
DEFAULT = ["shortest", "launch_small_ops", "sync_item", "small_batch", "healthy_gan", "healthy_data_on_gpu", "healthy_resnet", "healthy_transformer"]
WARM_UP = 60  # steps; then the recorder's own hooks are in place
GROUP_NS, LEAST_GROUP, MOST_GROUP = 150_000_000, 8, 100
SETTLE = 3  # steps after the switch that do not count
MEDIAN, WORST, WORST_US = 0.005, 0.01, 10.0


def original(owner, name):
    """Torch's own function, below all hooks."""
    from fullwatt import entry

    return next(patch[3] for patch in entry.current().patches._done if patch[1] is owner and patch[2] == name)


class Switch:
    """Takes the hooks of a steady step out and puts them in again, without the agent's knowledge."""

    def __init__(self, torch):
        loader = torch.utils.data.dataloader._BaseDataLoaderIter
        places = [(torch.autograd, "backward"), (loader, "__next__")]
        self.functions = [(owner, name, vars(owner)[name], original(owner, name)) for owner, name in places]
        module = sys.modules["torch.optim.optimizer"]
        self.tables = [(table, dict(table)) for table in (module._global_optimizer_pre_hooks, module._global_optimizer_post_hooks)]

    def turn(self, on):
        for owner, name, ours, theirs in self.functions:
            setattr(owner, name, ours if on else theirs)
        for table, entries in self.tables:
            table.clear()
            table.update(entries if on else {})


class Turns:
    """Told of each step's end, it turns the hooks on and off, group by group, and keeps the median step of each."""

    def __init__(self, torch):
        self.torch = torch
        self.switch = None
        self.on = True
        self.size = 0
        self.ends = []
        self.groups = {True: [], False: []}

    def step_ended(self):
        self.ends.append(time.perf_counter_ns())
        if self.switch is None and len(self.ends) > WARM_UP:
            pace = (self.ends[-1] - self.ends[WARM_UP // 2]) / (WARM_UP // 2)
            self.size = max(LEAST_GROUP, min(MOST_GROUP, int(GROUP_NS / pace))) + SETTLE
            self.switch = Switch(self.torch)
            self.begin()
        elif self.switch is not None and len(self.ends) > self.size:
            lengths = [(b - a) / 1e3 for a, b in zip(self.ends, self.ends[1:])]
            self.groups[self.on].append(statistics.median(lengths[SETTLE:]))
            self.begin()

    def begin(self):
        self.on = not self.on
        self.switch.turn(self.on)
        self.ends = [time.perf_counter_ns()]

    def over(self):
        if self.switch is not None:
            self.switch.turn(True)


def train_shortest(turns, device, seconds):
    torch = turns.torch
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = torch.utils.data.TensorDataset(torch.randn(1_000_000, 16))
    end = time.monotonic() + seconds
    for (inputs,) in torch.utils.data.DataLoader(data, batch_size=1):
        optimizer.zero_grad()
        model(inputs.to(device)).sum().backward()
        optimizer.step()
        turns.step_ended()
        if time.monotonic() > end:
            break


def train_workload(turns, name, seconds):
    sys.path.insert(0, str(truth.WORKLOADS))
    import common

    step = common.Meter.step

    def step_and_turn(meter, samples):
        turns.step_ended()
        return step(meter, samples)

    common.Meter.step = step_and_turn
    sys.argv = [str(truth.script(name)), "--seconds", str(seconds)]
    runpy.run_path(sys.argv[0], run_name="__main__")


def train(name, seconds, output):
    """The training under fullwatt: its steps in microseconds, group by group, with and without the hooks."""
    import torch

    turns, device = Turns(torch), "cuda" if torch.cuda.is_available() else "cpu"
    if name == "shortest":
        train_shortest(turns, device, seconds)
    else:
        train_workload(turns, name, seconds)
    turns.over()
    pathlib.Path(output).write_text(json.dumps({"device": device, "without": turns.groups[False], "with": turns.groups[True]}), encoding="utf-8")


def measure(fullwatt, name, seconds):
    """One run: the plain step, what the hooks add, and what fullwatt tells about itself, in microseconds."""
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder) / "groups.json"
        variables = {**os.environ, "FULLWATT_HOME": folder, "FULLWATT_WINDOWS": "off"}
        train_it = [sys.executable, __file__, str(fullwatt), "--workloads", name, "--seconds", str(seconds), "--train", str(output)]
        subprocess.run([str(fullwatt), "run", "--quiet", "--", *train_it], env=variables, check=True, stdout=subprocess.DEVNULL)
        groups = json.loads(output.read_text(encoding="utf-8"))
        report = json.loads(next(pathlib.Path(folder).glob("runs/*/report.json")).read_text(encoding="utf-8"))
    differences = [b - a for a, b in zip(groups["without"], groups["with"])]
    return {"device": groups["device"], "step_us": statistics.median(groups["without"]), "added_us": statistics.median(differences),
            "pairs": len(differences), "told_us": report["overhead_steady_us"]}


def in_the_middle(repeats):
    """One workload's figures, the medians of its repeats."""
    return {key: statistics.median(repeat[key] for repeat in repeats) for key in ("step_us", "added_us", "told_us", "pairs")}


def targets(rows):
    """(what, reached, target, met)"""
    shares = {name: row["added_us"] / row["step_us"] for name, row in rows.items()}
    beyond = [name for name, share in shares.items() if share > WORST and rows[name]["added_us"] > WORST_US]
    middle = statistics.median(shares.values())
    return [("median of the workloads", f"{100 * middle:.2f} %", "0.5 %", middle <= MEDIAN), ("above both 1 % and 10 µs", ", ".join(beyond) or "none", "none", not beyond)]


def table(results, head):
    rows = {name: in_the_middle(repeats) for name, repeats in results.items()}
    reached = targets(rows)
    marks = {True: "yes", False: "**no**"}
    lines = ["# What the hooks of a steady step cost", "", head, "",
             "Made by `bench/hooks.py`: trainings under `fullwatt run`, no window open. The hooks are taken out and put in again after every group of steps; shown are the medians of a group's "
             "steps and of the differences between neighbouring groups, in the middle of the repeats.", "",
             "| | reached | target | met |", "|---|---|---|---|", *[f"| {what} | {value} | {target} | {marks[met]} |" for what, value, target, met in reached], "",
             "| workload | step without hooks, µs | hooks add, µs | of the step | fullwatt tells, µs | pairs of groups | repeats |", "|---|---|---|---|---|---|---|"]
    for name, row in rows.items():
        lines.append(f"| {name} | {row['step_us']:.1f} | {row['added_us']:+.2f} | {100 * row['added_us'] / row['step_us']:+.2f} % | {row['told_us']:.1f} | {row['pairs']:.0f} | {len(results[name])} |")
    return "\n".join(lines) + "\n", all(met for _, _, _, met in reached)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("fullwatt", type=pathlib.Path)
    parser.add_argument("--workloads", nargs="*", default=DEFAULT)
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--merge", action="store_true", help="add to the repeats of earlier calls")
    parser.add_argument("--commit", default="")
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS)
    parser.add_argument("--train", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        return train(options.workloads[0], options.seconds, options.train)
    options.output.mkdir(parents=True, exist_ok=True)
    stored = options.output / "hooks.json"
    results = json.loads(stored.read_text(encoding="utf-8")) if options.merge and stored.exists() else {}
    head = running.machine(options.commit, options.fullwatt)
    for name in [name for _ in range(options.repeats) for name in options.workloads]:
        results.setdefault(name, []).append(measure(options.fullwatt.resolve(), name, options.seconds))
        stored.write_text(json.dumps(results, indent=1), encoding="utf-8")
        text, met = table(results, head)
        (options.output / "hooks.md").write_text(text, encoding="utf-8")
    print(text)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
