"""Measures what recording costs a training, side by side with the plain program, bare CUPTI and torch.profiler; steady steps are for hooks.py.

Usage: overhead.py FULLWATT [--workloads NAME…] [--repeats N] [--seconds S] [--whole S]. Each repeat runs all ways in a new random order, a process
each; a ratio is always formed within one process, since two differ by more than what is measured. Ends with 1 when a target is missed.
"""

import argparse
import json
import pathlib
import random
import statistics
import tempfile

import overhead_table
import running
import spool
import truth

RESULTS = pathlib.Path(__file__).resolve().parent / "results"
HERE = pathlib.Path(__file__).resolve().parent
DEFAULT = ["launch_small_ops", "sync_item", "small_batch", "healthy_transformer", "healthy_data_on_gpu", "loader_slow_collate"]
WARM_UP, MARGIN = 20, 5


def steps_in(own, start=None, end=None):
    """Lengths in ms of the steps that lie within a time, all of them without one; the first ones never count."""
    ends = own["ends_ns"]
    pairs = list(zip(ends, ends[1:]))[WARM_UP:]
    return [(b - a) / 1e6 for a, b in pairs if (start is None or a >= start) and (end is None or b <= end)]


def outside(own, start, end):
    """Steps before and after a recording, without those that feel its beginning or end."""
    return steps_in(own, None, start) + steps_in(own, end)[MARGIN:]


def mean(values):
    return statistics.fmean(values) if values else None


def middle_mean(values):
    """The mean of the middle half: a few long steps say nothing about what each step costs."""
    quarter = len(values) // 4
    return mean(sorted(values)[quarter:len(values) - quarter])


def plain(name, entry, options):
    return {"step": middle_mean(steps_in(running.plain(truth.script(name), options.seconds, entry.get("launch"), trace=True)))}


def windowed(name, entry, options):
    """Steps inside windows of each mode, and after the last one."""
    own, _, windows = running.watched(options.fullwatt, truth.script(name), options.seconds, entry.get("launch"), True, look=spool.windows)
    result = {"windows": len(windows)}
    for mode in ("times", "causes"):
        inside = [step for kind, start, end in windows if kind == mode for step in steps_in(own, start, end)]
        result[mode] = middle_mean(inside)
    if windows:
        result["before"] = middle_mean(steps_in(own, None, windows[0][1]))
        result["outside"] = middle_mean(outside(own, windows[0][1], windows[-1][2]))
        result["after"] = middle_mean(steps_in(own, windows[-1][2])[MARGIN:])
    return result


def profiled(mode):
    def run(name, entry, options):
        with tempfile.TemporaryDirectory() as folder:
            marks = pathlib.Path(folder) / "marks.json"
            own = running.plain(truth.script(name), options.seconds, trace=True, before=(HERE / "under_profiler.py", mode, str(marks)))
            start, end = json.loads(marks.read_text(encoding="utf-8")) if marks.exists() else (0, 0)
            return {"inside": middle_mean(steps_in(own, start, end)), "outside": middle_mean(outside(own, start, end))}
    return run


def whole_watched(name, entry, options):
    """A long run: what the steps in and around its windows took beyond the others, and what the hooks add to every step."""
    own, report, windows = running.watched(options.fullwatt, truth.script(name), options.whole, entry.get("launch"), True, look=spool.windows)
    ends = own["ends_ns"]
    steps = list(zip(ends, ends[1:]))[WARM_UP:]
    recorded = {place + after for place, (start, end) in enumerate(steps) for after in range(MARGIN + 1)
                if any(start < closed and end > opened for _, opened, closed in windows)}
    lengths = [(end - start) / 1e6 for start, end in steps]
    quiet = mean([length for place, length in enumerate(lengths) if place not in recorded])
    extra = sum(length - quiet for place, length in enumerate(lengths) if place in recorded)
    hooks = len(lengths) * report["overhead_steady_us"] / 1e3
    return {"share": (extra + hooks) / sum(lengths), "told_share": report["overhead_share"], "windows": len(windows), "steps": len(lengths)}


WAYS = {"plain": plain, "windowed": windowed, "bare_cupti": profiled("bare"), "profiler_cuda": profiled("cuda"), "profiler_both": profiled("cpu+cuda")}
WHOLE = {"whole": whole_watched}


def repeat(name, entry, options, ways, order):
    """One measurement of each way, in random order."""
    names = [way for way in ways if way not in options.skip]
    order.shuffle(names)
    result = {}
    for way in names:
        try:
            result[way] = ways[way](name, entry, options)
        except (running.Failed, running.Skipped) as reason:
            print(f"{name} {way}: {reason}", flush=True)
    print(f"{name}: {json.dumps(result)}", flush=True)
    return result


def store(rows, head, options):
    """Writes what is there so far; tells whether a target is missed."""
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "overhead.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    text, missed = overhead_table.table(rows, head, options)
    (options.output / "overhead.md").write_text(text, encoding="utf-8")
    return missed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("fullwatt", type=pathlib.Path)
    parser.add_argument("--workloads", nargs="*", default=DEFAULT)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--whole", type=float, default=65.0, help="length of the long run; 0: none")
    parser.add_argument("--whole-repeats", type=int, default=1)
    parser.add_argument("--whole-workloads", nargs="*", default=DEFAULT[:2])
    parser.add_argument("--skip", nargs="*", default=[], choices=[*WAYS, *WHOLE])
    parser.add_argument("--merge", action="store_true", help="add to the repeats of earlier calls")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--commit", default="")
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS)
    options = parser.parse_args()
    options.fullwatt = options.fullwatt.resolve()
    running.end_on_sigterm()
    entries, order = truth.load(), random.Random(options.seed)
    stored = options.output / "overhead.json"
    rows = json.loads(stored.read_text(encoding="utf-8")) if options.merge and stored.exists() else {}
    head, missed = running.machine(options.commit, options.fullwatt), False
    plan = [(name, WAYS) for _ in range(options.repeats) for name in options.workloads]
    plan += [(name, WHOLE) for _ in range(options.whole_repeats if options.whole else 0) for name in options.whole_workloads]
    for name, ways in plan:
        rows.setdefault(name, []).append(repeat(name, entries[name], options, ways, order))
        missed = store(rows, head, options)
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
