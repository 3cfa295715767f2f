"""What the hooks of a steady step cost: they are switched on and off in turn within one training of very short steps, under `fullwatt run`.

Usage: hooks.py FULLWATT [--rounds N] [--repeats N] [--commit ID]. Ends with 1 when the target is missed.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import running

RESULTS = pathlib.Path(__file__).resolve().parent / "results"
GROUP, SETTLE, WARM_UP = 100, 10, 300
MOST_US = 10.0


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
        for owner, name, ours, original in self.functions:
            setattr(owner, name, ours if on else original)
        for table, entries in self.tables:
            table.clear()
            table.update(entries if on else {})


def train(rounds, output):
    """The training under fullwatt: its steps in microseconds, group by group, with and without the hooks."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = torch.utils.data.TensorDataset(torch.randn(WARM_UP + 2 * rounds * GROUP, 16))
    batches = iter(torch.utils.data.DataLoader(data, batch_size=1))

    def steps(count):
        ends = []
        for _ in range(count):
            (inputs,) = next(batches)
            optimizer.zero_grad()
            model(inputs.to(device)).sum().backward()
            optimizer.step()
            ends.append(time.perf_counter_ns())
        return statistics.median((b - a) / 1e3 for a, b in zip(ends[SETTLE:], ends[SETTLE + 1:]))

    steps(WARM_UP)
    switch, groups = Switch(torch), {True: [], False: []}
    for number in range(2 * rounds):
        on = number % 2 == 1
        switch.turn(on)
        groups[on].append(steps(GROUP))
    switch.turn(True)
    pathlib.Path(output).write_text(json.dumps({"device": device, "without": groups[False], "with": groups[True]}), encoding="utf-8")


def measure(fullwatt, rounds):
    """One run: the plain step, what the hooks add, and what fullwatt tells about itself, in microseconds."""
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder) / "groups.json"
        variables = {**os.environ, "FULLWATT_HOME": folder, "FULLWATT_WINDOWS": "off"}
        command = [str(fullwatt), "run", "--quiet", "--", sys.executable, __file__, str(fullwatt), "--rounds", str(rounds), "--train", str(output)]
        subprocess.run(command, env=variables, check=True)
        groups = json.loads(output.read_text(encoding="utf-8"))
        report = json.loads(next(pathlib.Path(folder).glob("runs/*/report.json")).read_text(encoding="utf-8"))
    added = statistics.median(b - a for a, b in zip(groups["without"], groups["with"]))
    return {"device": groups["device"], "step_us": statistics.median(groups["without"]), "added_us": added, "told_us": report["overhead_steady_us"]}


def table(rows, head, rounds):
    lines = ["# What the hooks of a steady step cost", "", head, "",
             f"Made by `bench/hooks.py`: a training of very short steps under `fullwatt run`, no window open. The hooks are taken out and put in again every {GROUP} steps, {rounds} times each; "
             "shown are the medians of a group's steps and of the differences between neighbouring groups.", "",
             "| device | step without hooks, µs | hooks add, µs | fullwatt tells, µs |", "|---|---|---|---|"]
    return "\n".join(lines + [f"| {row['device']} | {row['step_us']:.1f} | {row['added_us']:+.2f} | {row['told_us']:.1f} |" for row in rows]) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("fullwatt", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--commit", default="")
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS)
    parser.add_argument("--train", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        return train(options.rounds, options.train)
    rows = [measure(options.fullwatt.resolve(), options.rounds) for _ in range(options.repeats)]
    options.output.mkdir(parents=True, exist_ok=True)
    text = table(rows, running.machine(options.commit, options.fullwatt), options.rounds)
    (options.output / "hooks.md").write_text(text, encoding="utf-8")
    print(text)
    return 1 if statistics.median(row["added_us"] for row in rows) > MOST_US else 0


if __name__ == "__main__":
    sys.exit(main())
