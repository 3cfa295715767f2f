"""Runs fullwatt-train and programs with PyTorch, each in a folder and within a time of its own, and returns how fast they were."""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

import running

HERE = pathlib.Path(__file__).resolve().parent
WARM_UP_S, WARM_UP_LINES, LEAST_LINES = 1.0, 2, 3  # of metrics.jsonl: while it warms up, and in the steady state
STOP_S = 30.0  # for the checkpoint of a training that is asked to stop
PERIOD_S = 0.5  # between two looks at the memory
MANY = 1_000_000  # epochs of a training that is stopped when enough of it was measured
LONGEST_REASON = 200
NO_TIME = "no time was left"
LONG = 5  # times the limit of the others: a training of 10,000 steps


class Clock:
    """Seconds that all runs together and each of them may take."""

    def __init__(self, budget, limit):
        self.ends = time.monotonic() + budget if budget else float("inf")
        self.limit = limit

    def is_over(self):
        return time.monotonic() >= self.ends

    def for_one(self, times=1):
        """Seconds of a run that may take so many times as long as others."""
        if self.is_over():
            raise running.Skipped(NO_TIME)
        return min(times * self.limit, self.ends - time.monotonic())

    def late(self, what, times=1):
        """Why a run was ended: by its own limit, which is its fault, or because all had too little time."""
        return running.Skipped(NO_TIME) if self.is_over() else running.Failed(f"{what} after {times * self.limit:.0f} s")


@contextlib.contextmanager
def program(command, folder):
    """In a session of its own, so that nothing outlives it, and with temporary files in its folder. What it says is in output.txt."""
    with open(folder / "output.txt", "w", encoding="utf-8") as output:
        words = list(map(str, command))
        variables = {**os.environ, "TMPDIR": str(folder)}
        process = subprocess.Popen(words, cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextlib.contextmanager
def scratch_folder():
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:  # a worker of a program that was killed may still write
        yield pathlib.Path(name)


def said(folder):
    return (folder / "output.txt").read_text(encoding="utf-8", errors="replace")


def check(code, folder, good=(0,)):
    """Raises with what the program said last."""
    lines = [line.strip() for line in said(folder).splitlines() if line.strip()]
    last = next((line for line in lines if line.startswith("fullwatt train: ")), lines[-1] if lines else "it said nothing")
    if code == running.SKIPPED:
        raise running.Skipped(last)
    if code not in good:
        raise running.Failed(f"exit code {code}: {last[:LONGEST_REASON]}")


def python(options, arguments):
    """Samples/s that a program of PyTorch prints, and its notes."""
    limit = options.clock.for_one()
    with scratch_folder() as folder, program([sys.executable, *arguments], folder) as process:
        try:
            check(process.wait(timeout=limit), folder)
        except subprocess.TimeoutExpired:
            raise options.clock.late("not over") from None
        text = said(folder)
        rate = re.search(r"samples_per_second=([\d.]+)", text)
        if not rate:
            raise running.Failed("it did not tell samples_per_second")
        return {"rate": float(rate.group(1)), "notes": re.findall(r"^note: (.*)", text, re.MULTILINE)}


def limit(options, way, model, data, batch, *more):
    return python(options, [HERE / "train_limits.py", way, model, "--data", data, "--batch", batch, "--seconds", options.seconds, *more])


def command_of(options, config, settings, folder):
    given = {"output.folder": folder / "out", "output.every_epochs": MANY, "hardware.device": "cuda" if options.gpu else "cpu", "train.epochs": MANY, **settings}
    return [options.program, config, "--anew", *(word for name, value in given.items() for word in ("--set", f"{name}={value}"))]


def lines_of(folder, batch):
    """What metrics.jsonl tells so far; each line with the samples and seconds since the one before."""
    path = folder / "out" / "metrics.jsonl"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    found, step = [], 0
    for line in text[:text.rfind("\n") + 1].splitlines():
        told = json.loads(line)
        samples, step = batch * (told["step"] - step), told["step"]
        found.append({**told, "samples": samples, "seconds": samples / told["samples_per_second"]})
    return found


def steady(lines):
    """Without the first ones, in which kernels are chosen, the graph is recorded and memory is taken."""
    passed = 0.0
    for number, line in enumerate(lines):
        if number >= WARM_UP_LINES and passed >= WARM_UP_S:
            return lines[number:]
        passed += line["seconds"]
    return []


def seconds_of(lines):
    return sum(line["seconds"] for line in lines)


def rate_of(lines):
    if not lines:
        raise running.Failed("it ended before its steady state")
    return sum(line["samples"] for line in lines) / seconds_of(lines)


def told_of(folder):
    """The precision in force, and what the engine could not do as it was told."""
    text = said(folder)
    notes = [line.strip() for line in text.splitlines() if line.startswith(("no CUDA graph", "out of memory"))]
    precision = re.search(r" samples, on \S+ in (\w+)", text)
    if not precision:
        raise running.Failed("it did not tell its precision")
    return {"precision": precision.group(1), "notes": notes}


def ours(options, config, settings):
    """fullwatt-train for as long as it takes to measure it; then it is asked to stop, as by Ctrl-C."""
    deadline = time.monotonic() + options.clock.for_one()
    batch = settings["train.batch_size"]
    with scratch_folder() as folder, program(command_of(options, config, settings, folder), folder) as process:
        found = []
        while process.poll() is None and time.monotonic() < deadline and (len(found) < LEAST_LINES or seconds_of(found) < options.seconds):
            time.sleep(0.1)
            found = steady(lines_of(folder, batch))
        if process.poll() is not None:
            check(process.returncode, folder)
        if not found:
            raise options.clock.late("no steady state")
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            check(process.wait(timeout=STOP_S), folder, (0, 130))
        return {"rate": rate_of(found), **told_of(folder)}


def ours_to_the_end(options, config, settings, look=lambda process, folder: None, times=1):
    """All that a training tells that ends by itself; `look` is called again and again while it runs."""
    deadline = time.monotonic() + options.clock.for_one(times)
    with scratch_folder() as folder, program(command_of(options, config, settings, folder), folder) as process:
        while process.poll() is None:
            if time.monotonic() > deadline:
                raise options.clock.late("not over", times)
            look(process, folder)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=PERIOD_S)
        check(process.returncode, folder)
        return {"lines": lines_of(folder, settings["train.batch_size"]), "checkpoints": len(re.findall(r"^saved ", said(folder), re.MULTILINE)), **told_of(folder)}


def converged(options, config, settings):
    """The mean loss of the last epoch, and the speed."""
    told = ours_to_the_end(options, config, settings)
    if told["precision"] != settings["train.amp"]:
        raise running.Failed(f"it trained in {told['precision']} instead of {settings['train.amp']}")
    lines = told["lines"]
    last, weights, step = [], [], 0
    for line in lines:
        if line["epoch"] == lines[-1]["epoch"]:
            last.append(line["loss"])
            weights.append(line["step"] - step)
        step = line["step"]
    return {"loss": sum(loss * weight for loss, weight in zip(last, weights)) / sum(weights), "rate": rate_of(steady(lines)), "notes": told["notes"]}


def resident_mb(pid):
    found = re.search(r"VmRSS:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8"))
    return int(found.group(1)) / 1024 if found else None


def device_mb():
    used = running.first_line(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"])
    return float(used) if used else None


def endured(options, config, settings):
    """A long training: its memory as it goes, its lines of the steady state, and its checkpoints."""
    samples = []

    def look(process, folder):
        lines = lines_of(folder, settings["train.batch_size"])
        with contextlib.suppress(OSError):  # it may just have ended
            samples.append({"step": lines[-1]["step"] if lines else 0, "host_mb": resident_mb(process.pid), "device_mb": device_mb() if options.gpu else None})

    told = ours_to_the_end(options, config, settings, look, LONG)
    lines = [{key: line[key] for key in ("step", "samples", "seconds")} for line in steady(told["lines"])]
    return {"memory": samples, "lines": lines, "checkpoints": told["checkpoints"], "notes": told["notes"]}
