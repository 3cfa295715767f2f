"""Runs one workload, plain or under fullwatt, and returns what it and fullwatt measured."""

import json
import os
import pathlib
import platform
import re
import signal
import statistics
import subprocess
import sys
import tempfile

SKIPPED = 77
WARM_UP, MARGIN = 20, 5  # steps at the beginning, and after a window, that are not like the others


class Failed(Exception):
    """The program ended with an error, or not at all."""


class Skipped(Exception):
    """The program needs something that is not here."""


def end_on_sigterm():
    """Being told to end is an exception like Ctrl-C, so that the program that runs is ended, too."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def python_command(program, launch):
    ranks = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"] if launch == "torchrun" else []
    return [sys.executable, *ranks, str(program)]


def call(command, folder, seconds, environment):
    """Runs it in a session of its own, so that nothing outlives it."""
    limit = 3 * seconds + 120
    variables = {**os.environ, **(environment or {})}
    with open(folder / "output.txt", "w", encoding="utf-8") as output:
        process = subprocess.Popen(command, cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code = process.wait(timeout=limit)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise Failed(f"not over after {limit:.0f} s") from None
            raise
    if code == SKIPPED:
        raise Skipped((folder / "output.txt").read_text(encoding="utf-8").strip().splitlines()[-1])
    return code


def own_measurement(folder, code, name="own.json"):
    path = folder / name
    if not path.exists():
        tail = "\n".join((folder / "output.txt").read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
        raise Failed(f"exit code {code}, no measurement; the end of its output:\n{tail}")
    return json.loads(path.read_text(encoding="utf-8"))


def plain(program, seconds, launch=None):
    """The program alone."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        command = [*python_command(program, launch), "--seconds", str(seconds), "--json", str(folder / "own.json")]
        return own_measurement(folder, call(command, folder, seconds, None))


def watched(fullwatt, program, seconds, launch=None, trace=False, environment=None, look=None):
    """The program under `fullwatt run`: its own measurement, fullwatt's report, and what `look` finds in the run folder."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        command = [str(fullwatt), "run", "--quiet", "--", *python_command(program, launch), "--seconds", str(seconds), "--json", str(folder / "own.json")]
        code = call(command + ["--trace"] * trace, folder, seconds, {"FULLWATT_HOME": str(folder / "home"), **(environment or {})})
        own = own_measurement(folder, code)
        reports = sorted((folder / "home" / "runs").glob("*/report.json"))
        if not reports:
            tail = "\n".join((folder / "output.txt").read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
            raise Failed(f"fullwatt wrote no report; the end of the output:\n{tail}")
        return own, json.loads(reports[-1].read_text(encoding="utf-8")), look(reports[-1].parent) if look else None


def around_windows(steps, windows):
    """Places of the steps that were recorded, and of those right after them."""
    return {place + after for place, (start, end) in enumerate(steps) for after in range(MARGIN + 1)
            if any(start < closed and end > opened for _, opened, closed in windows)}


def outside_windows(own, windows):
    """The program's own measurement without the steps that fullwatt recorded, as fullwatt's figures are."""
    ends = own.pop("ends_ns", [])
    steps = list(zip(ends, ends[1:]))[WARM_UP:]
    recorded = around_windows(steps, windows)
    lengths = sorted((end - start) / 1e6 for place, (start, end) in enumerate(steps) if place not in recorded)
    if not windows:
        return own
    if len(lengths) < WARM_UP:  # the others were recorded: what they took is not what a step takes
        return {**own, "samples_per_second": None, "step_ms": {**own["step_ms"], "count": len(lengths)}}
    per_step = own["samples_per_second"] * own["seconds"] / max(1, own["step_ms"]["count"])
    end_ns = ends[-1 - own["step_ms"]["count"]] + round(1e9 * own["seconds"])
    figures = {"median": statistics.median(lengths), "p05": lengths[len(lengths) // 20], "p95": lengths[-1 - len(lengths) // 20], "count": len(lengths)}
    mean = mean_between(ends, end_ns, windows, own.get("drained_step"))
    if mean is None:  # nobody can tell: a program may be many steps ahead of the GPU
        return {**own, "samples_per_second": None, "step_ms": figures}
    return {**own, "samples_per_second": 1e3 * per_step / mean, "step_ms": {**figures, "mean": mean}}


def mean_between(ends, end_ns, windows, drained_step=None):
    """Milliseconds of a step, outside of windows. After `drained_step`, where a window opens, where one has closed and at the end the GPU has done all its work; anywhere else
    the program may be many steps ahead of it. None when there are too few steps."""
    begins = [closed for _, _, closed in windows]
    stops = [opened for _, opened, _ in windows[1:]] + [end_ns]
    if drained_step is not None and drained_step < len(ends):
        begins.insert(0, ends[drained_step])
        stops.insert(0, windows[0][1])
    steps, length = 0, 0
    for begin, until in zip(begins, stops):
        inside = [end for end in ends if begin <= end <= until]
        if len(inside) > MARGIN:
            steps += len(inside) - (until == end_ns)  # the step in which a window opens ends behind its opening
            length += until - inside[0]
    return length / 1e6 / steps if steps >= WARM_UP else None


def first_line(command):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.strip().splitlines()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return ""


def commit_here():
    root = pathlib.Path(__file__).resolve().parent.parent
    return first_line(["git", "-C", str(root), "rev-parse", "--short", "HEAD"]) or "unknown"


def gpu():
    """Its name and driver; empty where there is none."""
    return first_line(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"])


def machine(commit, fullwatt):
    """One line for the head of a table."""
    import torch

    model = re.search(r"model name\s*:\s*(.*)", pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    commit = commit or commit_here()
    return (f"Machine: {gpu() or 'no GPU'}; {len(os.sched_getaffinity(0))} × {model.group(1) if model else platform.machine()}; Linux {platform.release()}; "
            f"Python {platform.python_version()}, torch {torch.__version__}; {first_line([str(fullwatt), '--version']) or 'fullwatt'}, commit {commit}.")
