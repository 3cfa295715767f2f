"""Measures what fullwatt costs a training: the hooks of a steady step, the process beside it, the windows beside bare CUPTI and torch.profiler, and a whole run.

Usage: overhead.py FULLWATT [--workloads NAME…] [--ways NAME…] [--repeats N] [--seconds S] [--whole S] [--merge]. Each cost comes from neighbouring
groups of steps within one process (turns.py), what windows leave behind from turns of several (relay.py). Ends with 1 when a target is missed beyond the noise.
"""

import argparse
import concurrent.futures
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
WAYS = ["hooks", "sampler", "times+causes+bare_cupti", "profiler_cuda", "profiler_both", "profiler_stacks", "after"]  # those with + take turns in one process
OF_FULLWATT = {"hooks", "sampler", "times", "causes"}
LEAST_GROUPS = 6
SETS = 3 if running.gpu() else 1  # of like trainings that take turns at once; most of their time is their start
RELAY_S = 240  # by then all had their turns


def in_turns(name, ways, options):
    """Of each way what a step takes beyond those of the groups beside it, group by group, as share and in microseconds, and all that is lost from turning it on until it is off
    again; of those that took turns with bare CUPTI, also what a step takes beyond its."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        train = [sys.executable, str(HERE / "turns.py"), ways, name, str(options.seconds), str(folder / "groups.json")]
        under = [str(options.fullwatt), "run", "--quiet", "--"] if OF_FULLWATT.intersection(ways.split("+")) else []
        code = running.call(under + train, folder, options.seconds, {"FULLWATT_HOME": str(folder / "home"), "FULLWATT_WINDOWS": "off"})
        groups = running.own_measurement(folder, code, "groups.json")
        reports = list((folder / "home").glob("runs/*/report.json"))
        told = json.loads(reports[0].read_text(encoding="utf-8"))["overhead_steady_us"] if reports else None
    results = {way: costs(groups, way, options.seconds) for way in ways.split("+")}
    for way, result in results.items():
        result.update(device=groups["device"], told_us=told, step_us=groups["without"])
        if way != "bare_cupti" and "bare_cupti" in results:
            bare = results["bare_cupti"]
            result.update({f"{key}_beyond_bare": [ours - least for ours, least in zip(result[key], bare[key])] for key in ("added", "added_us")})
    return results


def costs(groups, way, seconds):
    plain = groups["without"]
    # A turn stands between two groups without it; the last one may have no group after it.
    turns = [(turn, (earlier + later) / 2) for turn, earlier, later in zip(groups["turns"], plain, plain[1:]) if turn["switch"] == way]
    if len(turns) < LEAST_GROUPS:
        raise running.Failed(f"only {len(turns)} groups of steps in {seconds:.0f} s; an interval needs {LEAST_GROUPS}")
    return {"added_us": [turn["step_us"] - beside for turn, beside in turns], "added": [turn["step_us"] / beside - 1 for turn, beside in turns],
            "lost": [turn["took_us"] / (turn["steps"] * beside) - 1 for turn, beside in turns]}


def left_behind(name, options):
    """Like trainings take turns; halfway some have windows, or bare CUPTI, and others have nothing. What their steps take after that beyond what they took before, beside one that
    had nothing; each a single number, since what a process is like by chance is in all of its steps."""
    one_set = ["nothing", "nothing", "windows", *(["bare_cupti"] if running.gpu() else [])]
    happens = SETS * one_set
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        pipes = [str(folder / f"pipe{place}") for place in range(len(happens))]
        for pipe in pipes:
            os.mkfifo(pipe)

        def train(place):
            own = folder / str(place)
            own.mkdir()
            command = [str(options.fullwatt), "run", "--quiet", "--", sys.executable, str(HERE / "relay.py"), happens[place], name, str(RELAY_S), str(own / "turns.json"),
                       pipes[place], pipes[(place + 1) % len(pipes)], *(["first"] if place == 0 else [])]  # fmt: skip
            code = running.call(command, own, RELAY_S, {"FULLWATT_HOME": str(own / "home"), "FULLWATT_WINDOWS": "off"})
            return running.own_measurement(own, code, "turns.json")

        with concurrent.futures.ThreadPoolExecutor(len(happens)) as pool:
            trained = list(pool.map(train, range(len(happens))))
    sets = [trained[start:start + len(one_set)] for start in range(0, len(trained), len(one_set))]
    changes = [[change(plain, other) for other in others] for plain, *others in sets]
    return {**dict(zip(("control", "left", "left_by_bare"), map(list, zip(*changes)))), "device": trained[0]["device"]}


def change(plain, other):
    """Of the pace of one training beside the other's, halfway."""
    paces = [ours / theirs for ours, theirs in zip(other["turns"], plain["turns"])]
    halves = [training["half"] or 0 for training in (plain, other)]
    before, after = paces[:min(halves)], paces[max(halves):]
    if min(len(before), len(after)) < LEAST_GROUPS:
        raise running.Failed(f"only {len(paces)} turns of each training")
    return statistics.median(after) / statistics.median(before) - 1


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


def measured(name, ways, options):
    """One measurement by way, or none with a word about why."""
    try:
        if ways == "whole":
            results = {ways: whole(name, truth.load()[name], options)}
        else:
            results = {ways: left_behind(name, options)} if ways == "after" else in_turns(name, ways, options)
    except (running.Failed, running.Skipped) as reason:
        print(f"{name} {ways}: {reason}", flush=True)
        return {}
    for way, result in results.items():
        print(f"{name} {way}: {overhead_table.in_short(way, [result])}", flush=True)
    return results


def store(rows, head, options):
    """Writes what is there so far; tells whether a target is missed."""
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "overhead.json").write_text(json.dumps(rows), encoding="utf-8")
    text, missed = overhead_table.table(rows, head, options.whole)
    (options.output / "overhead.md").write_text(text, encoding="utf-8")
    return missed


def planned(options):
    """(workload, ways), each repeat in an order of its own."""
    order, plan = random.Random(options.seed), []
    for _ in range(options.repeats):
        pairs = [(name, ways) for name in options.workloads for ways in options.ways]
        order.shuffle(pairs)
        plan += pairs
    return plan + [(name, "whole") for name in options.whole_workloads if options.whole]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("fullwatt", type=pathlib.Path)
    parser.add_argument("--workloads", nargs="*", default=DEFAULT)
    parser.add_argument("--ways", nargs="*", default=WAYS, help="what is turned on and off; several joined by + in one process")
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
    for name, ways in planned(options):
        for way, result in measured(name, ways, options).items():
            rows.setdefault(name, {}).setdefault(way, []).append(result)
            missed = store(rows, head, options)
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
