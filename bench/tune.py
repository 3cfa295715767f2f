"""Tunes the examples, and holds the result against the program as written and against an expert's rewrite.

Usage: tune.py FULLWATT --keypoint DATA [--only NAME…] [--seeds N] [--commit ID]; DATA is made by examples/keypoint/generate.py. The plain program and the one with the
plan run under `fullwatt run`, whose steady samples/s are taken; the expert's tells its own. All three take turns.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import running

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"


def examples(data):
    """name: (program with its arguments, the expert's)"""
    keypoint, lstm = ROOT / "examples" / "keypoint", ROOT / "examples" / "lstm"
    return {
        "keypoint": ([keypoint / "train.py", "--data", data, "--targets", "dataset", "--epochs", "8"], [keypoint / "expert.py", "--data", data]),
        "lstm": ([lstm / "train.py", "--lengths", "60", "--hidden", "64", "--epochs", "12"], [lstm / "expert.py", "--epochs", "4"]),
    }


def python(arguments):
    return [sys.executable, *map(str, arguments)]


def tune(fullwatt, program, plan, seeds):
    """The answer of `tune`, and how many seconds it took."""
    started = time.monotonic()
    command = [fullwatt, "tune", "--json", "--seeds", str(seeds), "--output", plan, "--", *python(program)]
    answer = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=program[0].parent)
    return json.loads(answer.stdout), time.monotonic() - started


def steady(fullwatt, program, plan=None):
    """Samples/s of the steady state by fullwatt."""
    with tempfile.TemporaryDirectory() as folder:
        fix = ["--fix", plan] if plan else []
        subprocess.run([fullwatt, "run", "--quiet", *fix, "--", *python(program)], env={**os.environ, "FULLWATT_HOME": folder}, check=True,
                       stdout=subprocess.DEVNULL, cwd=program[0].parent)
        report = json.loads(next(pathlib.Path(folder).glob("runs/*/report.json")).read_text(encoding="utf-8"))
    return report["samples_per_second"]


def own(program):
    """What the expert's program tells."""
    answer = subprocess.run(python(program), stdout=subprocess.PIPE, text=True, check=True, cwd=program[0].parent)
    return float(re.search(r"samples_per_second=([\d.]+)", answer.stdout).group(1))


def measured(options, program, expert):
    with tempfile.TemporaryDirectory() as folder:
        plan = str(pathlib.Path(folder) / "plan.yaml")
        tuning, seconds = tune(options.fullwatt, program, plan, options.seeds)
        rates = {"plain": [], "plan": [], "expert": []}
        for _ in range(options.repeats):
            rates["plain"].append(steady(options.fullwatt, program))
            if tuning["proved"]:
                rates["plan"].append(steady(options.fullwatt, program, plan))
            rates["expert"].append(own(expert))
    return {"tuning": tuning, "seconds": seconds, **{way: statistics.median(values) if values else None for way, values in rates.items()}}


def number(value, digits=0):
    return "–" if value is None else f"{value:,.{digits}f}"


def predicted(said):
    """An interval for fixes that change kernels, else what the cost was said to be."""
    if said["low_ms"] is not None:
        return f"{number(said['low_ms'], 2)} … {number(said['high_ms'], 2)}"
    return number(said["ms"], 2)


def table(rows, head):
    lines = ["# `tune` on the examples", "", head, "", "Made by `bench/tune.py`. Samples/s of the steady state; the interval is that of the proof.", "",
             "| example | as written | with the plan | expert | speed-up (95 %) | loss | finding and proving took |", "|---|---|---|---|---|---|---|"]
    for name, row in rows.items():
        speed, loss = row["tuning"]["speed"], row["tuning"]["loss"]
        lines.append(f"| {name} | {number(row['plain'])} | {number(row['plan'])} | {number(row['expert'])} | {speed['speedup']:.2f} ({speed['low']:.2f} … {speed['high']:.2f}) | "
                     f"{loss['verdict']} over {loss['steps']} steps, {loss['pairs']} seeds | {row['seconds']:.0f} s |")
    for name, row in rows.items():
        lines += ["", f"## {name}", "", "| fix | kept | ms a step before | after | predicted | measured | reason |", "|---|---|---|---|---|---|---|"]
        for tried in row["tuning"]["tried"]:
            gain = None if tried["before_ms"] is None else tried["before_ms"] - tried["after_ms"]
            lines.append(f"| {tried['fix']['id']} | {'yes' if tried['kept'] else 'no'} | {number(tried['before_ms'], 2)} | {number(tried['after_ms'], 2)} | "
                         f"{predicted(tried['predicted'])} | {number(gain, 2)} | {tried['reason']} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("fullwatt", type=lambda text: str(pathlib.Path(text).resolve()))
    parser.add_argument("--keypoint", default="data", help="folder with the keypoint data")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--commit", default="")
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS)
    options = parser.parse_args()
    running.end_on_sigterm()
    options.output.mkdir(parents=True, exist_ok=True)
    rows, head = {}, running.machine(options.commit, options.fullwatt)
    for name, (program, expert) in examples(str(pathlib.Path(options.keypoint).resolve())).items():
        if options.only and name not in options.only:
            continue
        rows[name] = measured(options, program, expert)
        (options.output / "tune.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
        (options.output / "tune.md").write_text(table(rows, head), encoding="utf-8")
        print((options.output / "tune.md").read_text(encoding="utf-8"), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
