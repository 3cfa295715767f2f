"""Measures what fullwatt costs a training: the hooks of a steady step, the windows beside bare CUPTI and torch.profiler, and a whole run.

Usage: overhead.py FULLWATT [--workloads NAME…] [--ways NAME…] [--repeats N] [--seconds S] [--whole S] [--merge]. Each cost comes from neighbouring
groups of steps within one process (turns.py). Ends with 1 when a target is missed beyond the noise.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import sys
import tempfile

import overhead_table
import running
import spool
import truth

HERE = pathlib.Path(__file__).resolve().parent
RESULTS = HERE / "results"
DEFAULT = ["shortest", "launch_small_ops", "sync_item", "small_batch", "healthy_gan", "healthy_data_on_gpu", "healthy_resnet", "healthy_transformer"]
WAYS = ["hooks", "times", "causes", "bare_cupti", "profiler_cuda", "profiler_both", "profiler_stacks"]
OF_FULLWATT = {"hooks", "times", "causes"}
LEAST_GROUPS = 6


def in_turns(name, way, options):
    """What a step takes beyond those of the groups beside it, group by group, as share and in microseconds; and beyond those before the first turn: the steps with it, those
    after it, and all that is lost from turning it on until it is off again."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        train = [sys.executable, str(HERE / "turns.py"), way, name, str(options.seconds), str(folder / "groups.json")]
        under = [str(options.fullwatt), "run", "--quiet", "--"] if way in OF_FULLWATT else []
        code = running.call(under + train, folder, options.seconds, {"FULLWATT_HOME": str(folder / "home"), "FULLWATT_WINDOWS": "off"})
        groups = running.own_measurement(folder, code, "groups.json")
        reports = list((folder / "home").glob("runs/*/report.json"))
        told = json.loads(reports[0].read_text(encoding="utf-8"))["overhead_steady_us"] if reports else None
    plain, costly = groups["without"], groups["with"]
    # A group with it stands between two without it.
    beside = [(before + after) / 2 for before, after in zip(plain, plain[1:])]
    if min(len(beside), len(costly)) < LEAST_GROUPS:
        raise running.Failed(f"only {len(costly)} groups of steps in {options.seconds:.0f} s; an interval needs {LEAST_GROUPS}")
    before = statistics.median(groups["before"])
    return {"device": groups["device"], "told_us": told, "step_us": plain, "added_us": [on - off for on, off in zip(costly, beside)],
            "added": [on / off - 1 for on, off in zip(costly, beside)], "with": [on / before - 1 for on in costly], "after": [off / before - 1 for off in plain[1:]],
            "lost": [took / (steps * before) - 1 for took, steps in groups["times_on"]]}


def whole(name, entry, options):
    """A long run: what the steps in and around its windows took beyond the others, and what the hooks add to every step."""
    own, report, windows = running.watched(options.fullwatt, truth.script(name), options.whole, entry.get("launch"), True, look=spool.windows)
    ends = own["ends_ns"]
    steps = list(zip(ends, ends[1:]))[running.WARM_UP:]
    recorded = running.around_windows(steps, windows)
    lengths = [(end - start) / 1e6 for start, end in steps]
    others = [length for place, length in enumerate(lengths) if place not in recorded]
    quiet = sum(others) / len(others)
    extra = sum(length - quiet for place, length in enumerate(lengths) if place in recorded)
    hooks = len(lengths) * report["overhead_steady_us"] / 1e3
    return {"share": (extra + hooks) / sum(lengths), "told_share": report["overhead_share"], "windows": len(windows), "steps": len(lengths)}


def measured(name, way, options):
    """One measurement, or None with a word about why there is none."""
    try:
        result = whole(name, truth.load()[name], options) if way == "whole" else in_turns(name, way, options)
    except (running.Failed, running.Skipped) as reason:
        print(f"{name} {way}: {reason}", flush=True)
        return None
    print(f"{name} {way}: {overhead_table.in_short(way, [result])}", flush=True)
    return result


def store(rows, head, options):
    """Writes what is there so far; tells whether a target is missed."""
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "overhead.json").write_text(json.dumps(rows), encoding="utf-8")
    text, missed = overhead_table.table(rows, head, options.whole)
    (options.output / "overhead.md").write_text(text, encoding="utf-8")
    return missed


def planned(options):
    """(workload, way), each repeat in an order of its own."""
    order, plan = random.Random(options.seed), []
    for _ in range(options.repeats):
        pairs = [(name, way) for name in options.workloads for way in options.ways]
        order.shuffle(pairs)
        plan += pairs
    return plan + [(name, "whole") for name in options.whole_workloads if options.whole]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("fullwatt", type=pathlib.Path)
    parser.add_argument("--workloads", nargs="*", default=DEFAULT)
    parser.add_argument("--ways", nargs="*", default=WAYS, choices=WAYS)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--whole", type=float, default=65.0, help="length of the long run; 0: none")
    parser.add_argument("--whole-workloads", nargs="*", default=["launch_small_ops"])
    parser.add_argument("--merge", action="store_true", help="add to the measurements of earlier calls")
    parser.add_argument("--seed", type=int, default=os.getpid())
    parser.add_argument("--commit", default="")
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS)
    options = parser.parse_args()
    options.fullwatt = options.fullwatt.resolve()
    running.end_on_sigterm()
    stored = options.output / "overhead.json"
    rows = json.loads(stored.read_text(encoding="utf-8")) if options.merge and stored.exists() else {}
    head, missed = running.machine(options.commit, options.fullwatt), False
    for name, way in planned(options):
        result = measured(name, way, options)
        if result is not None:
            rows.setdefault(name, {}).setdefault(way, []).append(result)
            missed = store(rows, head, options)
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
