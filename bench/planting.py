"""Shows that what is planted costs what it should: each workload as it is, and with its cause taken away.

Usage: planting.py [--only NAME…] [--seconds S] [--commit ID]. No fullwatt is needed. bench/workloads.py takes the `fixed_ms` from the result.
"""

import argparse
import json
import pathlib
import tempfile

import running
import truth

RESULTS = pathlib.Path(__file__).resolve().parent / "results"


def pair(name, entry, seconds):
    with tempfile.TemporaryDirectory() as folder:
        copy = truth.without_cause(name, entry, folder)
        fixed = running.plain(copy, seconds, entry.get("launch"))
    planted = running.plain(truth.script(name), seconds, entry.get("launch"))
    return {"device": planted["device"], "step_ms": planted["step_ms"]["mean"], "fixed_ms": fixed["step_ms"]["mean"], "data_ms": planted["data_ms"],
            "planted_ms": planted["planted_ms"], "busy_ms": planted["busy_ms"]}


def number(value):
    return "–" if value is None else f"{value:.2f}"


def table(rows, head):
    lines = ["# The planted workloads with and without their cause", "", head, "", "Mean step by the program's own clock, in ms.", "",
             "| workload | step | without the cause | ratio | own figure of the cause | GPU time by events |", "|---|---|---|---|---|---|"]
    for name, row in sorted(rows.items()):
        cost = row["planted_ms"] if row["planted_ms"] is not None else row["data_ms"]
        lines.append(f"| {name} | {number(row['step_ms'])} | {number(row['fixed_ms'])} | {row['step_ms'] / row['fixed_ms']:.2f} | {number(cost)} | {number(row['busy_ms'])} |")
    return "\n".join(lines) + "\n"


def store(rows, head, folder):
    """Writes what is there so far."""
    (folder / "planting.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    (folder / "planting.md").write_text(table(rows, head), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--merge", action="store_true", help="keep the rows of an earlier call, and run only the others")
    parser.add_argument("--commit", default="")
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS)
    options = parser.parse_args()
    running.end_on_sigterm()
    options.output.mkdir(parents=True, exist_ok=True)
    stored = options.output / "planting.json"
    rows = json.loads(stored.read_text(encoding="utf-8")) if options.merge and stored.exists() else {}
    head = running.machine(options.commit, "fullwatt")
    for name, entry in truth.load().items():
        if "fixed" not in entry or name in rows or (options.only and name not in options.only):
            continue
        try:
            rows[name] = pair(name, entry, options.seconds)
            store(rows, head, options.output)
            print(f"{name}: {number(rows[name]['step_ms'])} ms, without the cause {number(rows[name]['fixed_ms'])} ms", flush=True)
        except (running.Failed, running.Skipped) as reason:
            print(f"{name}: {reason}", flush=True)


if __name__ == "__main__":
    main()
