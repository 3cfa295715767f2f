"""Runs the workloads of tests/workloads under `fullwatt run` and says how often cause, line and figures are right.

Usage: workloads.py FULLWATT [--only NAME…] [--part I/N] [--budget SECONDS] [--keep FOLDER] [--merge]; or FULLWATT --kept FOLDER, which explains the
runs again that were kept, without running anything. Ends with 1 when a target is missed.
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import tempfile
import time

import planting
import running
import spool
import truth
import verdicts
import workloads_table

RESULTS = pathlib.Path(__file__).resolve().parent / "results"
SHORTEST, LONGEST = 4.0, 12.0
LOOK_S, MOST_USED = 1.0, 0.3
MOST_AGAIN, PAUSE_S = 3, 4.0
LEAST_SAVED = 0.1  # of a step: what a planted cause costs at least where it is one
START_GUESS = 6.0  # interpreter, PyTorch, CUDA and the report, until the first runs tell


def chosen(options):
    """The workloads for this machine, or those that were kept."""
    if options.kept:
        return {name: entry for name, entry in truth.load().items() if (options.kept / name / "own.json").exists()}
    import torch

    where = "gpu" if torch.cuda.is_available() else "cpu"
    entries = {name: entry for name, entry in truth.load().items() if (entry.get("gpu", True) if where == "gpu" else entry.get("cpu", False))}
    if options.only:
        entries = {name: entry for name, entry in entries.items() if name in options.only}
    if options.part:
        number, parts = (int(text) for text in options.part.split("/"))
        entries = dict(list(entries.items())[number - 1::parts])
    return entries


class Budget:
    """Shares out the time that is left; what a run takes beside its seconds of training is learned on the way."""

    def __init__(self, seconds):
        self.end = time.monotonic() + seconds if seconds else None
        self.beside = []

    def is_over(self):
        return self.end is not None and time.monotonic() > self.end

    def share(self, left, least):
        if self.end is None:
            return max(LONGEST, least)
        beside = sorted(self.beside)[len(self.beside) // 2] if self.beside else START_GUESS
        return max(least, min(LONGEST, max(SHORTEST, (self.end - time.monotonic()) / left - beside)))


def run_one(options, name, entry, seconds, fixed):
    def keep(folder):
        if options.keep:
            shutil.rmtree(options.keep / name, ignore_errors=True)  # a run that was measured again replaces the first one
            shutil.copytree(folder, options.keep / name, ignore=shutil.ignore_patterns("report.html"))
        return spool.windows(folder)

    own, report, windows = running.watched(options.fullwatt, truth.script(name), seconds, entry.get("launch"), trace=True, look=keep)
    if options.keep:
        (options.keep / name / "own.json").write_text(json.dumps(own), encoding="utf-8")
    own = running.outside_windows(own, windows)
    return verdicts.judged(name, entry, own, report, fixed.get(name, {}).get("fixed_ms"))


def judge_kept(options, name, entry, _, fixed, __):
    """The same from a run that was kept, explained by today's program."""
    folder = options.kept / name
    own = running.outside_windows(json.loads((folder / "own.json").read_text(encoding="utf-8")), spool.windows(folder))
    with tempfile.TemporaryDirectory() as scratch:
        copy = pathlib.Path(scratch) / name
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("report.json"))
        answer = subprocess.run([options.fullwatt, "report", copy, "--json"], stdout=subprocess.PIPE, check=True)
    return verdicts.judged(name, entry, own, json.loads(answer.stdout), fixed.get(name, {}).get("fixed_ms"))


def used_by_others():
    """Share of the CPUs that are busy while nothing of ours runs."""
    def read():
        numbers = [int(text) for text in pathlib.Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]]
        return sum(numbers), numbers[3] + numbers[4]

    all_before, idle_before = read()
    time.sleep(LOOK_S)
    all_after, idle_after = read()
    return 1 - (idle_after - idle_before) / max(1, all_after - all_before)


def is_wrong(row):
    return bool(row.get("alarms")) or row.get("right_cause") is False or row.get("right_line") is False


def run_and_judge(options, name, entry, seconds, fixed, budget):
    """A verdict that is wrong is asked for again with --again, over longer runs: a shared machine has seconds in which it is half as fast as usual, and
    does not always tell. Where others use the CPUs even then, nothing can be said."""
    row = run_one(options, name, entry, seconds, fixed)
    for _ in range(MOST_AGAIN if options.again else 0):
        if not is_wrong(row):
            return row
        if budget.is_over():
            raise running.Skipped("wrong in a short run, and no time is left for longer ones")
        time.sleep(PAUSE_S)
        row = run_one(options, name, entry, 3 * seconds, fixed)
    if options.again and is_wrong(row):
        print(f"{name}: {workloads_table.all_findings(row)}", flush=True)
        look_at_machine(name, entry, seconds)
    return row


def look_at_machine(name, entry, seconds):
    """Whether a wrong verdict can be this machine's doing: then nothing can be said here."""
    if used_by_others() > MOST_USED:
        raise running.Skipped("other programs use the CPUs of this machine")
    if "fixed" not in entry:
        return
    pair = planting.pair(name, entry, seconds)
    if pair["step_ms"] - pair["fixed_ms"] < LEAST_SAVED * pair["step_ms"]:
        raise running.Skipped(f"here the planted cause costs {pair['step_ms'] - pair['fixed_ms']:.2f} of {pair['step_ms']:.2f} ms: something else is slower on this machine")


def store(options, rows, head):
    """Writes what is there so far; returns the summary and whether a target is missed."""
    (options.output / "workloads.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    summary, missed = workloads_table.targets(rows, options.verdicts)
    (options.output / "workloads.md").write_text(workloads_table.table(rows, summary, head), encoding="utf-8")
    return summary, missed


def run_all(options, rows, head):
    entries = chosen(options)
    planting = options.output / "planting.json"
    fixed = json.loads(planting.read_text(encoding="utf-8")) if planting.exists() else {}
    budget = Budget(options.budget)
    for number, (name, entry) in enumerate(entries.items()):
        seconds = options.seconds or budget.share(len(entries) - number, entry.get("seconds", 0))
        started = time.monotonic()
        try:
            if options.again and budget.is_over():
                raise running.Skipped("no time is left: this machine is slow")
            judge = judge_kept if options.kept else run_and_judge
            rows[name] = judge(options, name, entry, seconds, fixed, budget)
        except running.Skipped as reason:
            rows[name] = {"skipped": str(reason)}
        except running.Failed as reason:
            rows[name] = {"failed": str(reason)}
        budget.beside.append(time.monotonic() - started - seconds)
        store(options, rows, head)
        print(f"{name}: {workloads_table.in_short(rows[name])}", flush=True)


def head_of(options):
    """The line that names machine, versions and commit; kept runs bring that of their machine."""
    if options.kept:
        machine = (options.kept / "machine.txt").read_text(encoding="utf-8").strip()
        return f"{machine} Recorded by that commit, explained by {options.commit or running.commit_here()}."
    head = running.machine(options.commit, options.fullwatt)
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
        (options.keep / "machine.txt").write_text(head, encoding="utf-8")
    return head


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("fullwatt", type=pathlib.Path, help="the fullwatt program")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--part", help="2/3: the second third of them")
    parser.add_argument("--seconds", type=float, default=0.0, help="length of each run")
    parser.add_argument("--budget", type=float, default=0.0, help="seconds for all of them")
    parser.add_argument("--again", action="store_true", help="run a workload up to three times more whose verdict is wrong; none when the budget is spent")
    parser.add_argument("--verdicts", action="store_true", help="leave out whether figures agree: short runs are mostly recording")
    parser.add_argument("--merge", action="store_true", help="keep the rows of earlier parts")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for every run")
    parser.add_argument("--kept", type=pathlib.Path, help="folder of runs to explain again")
    parser.add_argument("--commit", default="")
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS)
    options = parser.parse_args()
    options.fullwatt = options.fullwatt.resolve()
    running.end_on_sigterm()
    options.output.mkdir(parents=True, exist_ok=True)
    stored = options.output / "workloads.json"
    rows = json.loads(stored.read_text(encoding="utf-8")) if options.merge and stored.exists() else {}
    head = head_of(options)
    run_all(options, rows, head)
    summary, missed = store(options, rows, head)
    print("\n".join(summary))
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
