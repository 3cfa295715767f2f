"""Holds a report of `fullwatt run` against what is known about the workload."""

import pathlib

import truth

STEP_TOLERANCE, SAMPLES_TOLERANCE, BUSY_TOLERANCE = 0.05, 0.05, 0.10
SMALLEST_MS = 0.05
GAP_MS = 1.2e-3  # between two kernels that wait in a queue: 0.63 ms over 616 of them on an H200
OF_THE_MACHINE = {"cpu-contention", "threads-wait", "cpu-quota-throttles", "gpu-shared", "thermal-throttle", "sw-power-cap-normal"}


def known_cost(entry, own, fixed_ms):
    """Milliseconds of a step that the planted cause takes; None where a figure of the expression is missing."""
    if "cost" not in entry:
        return None
    names = {"step_ms": own["step_ms"].get("mean"), "data_ms": own["data_ms"], "planted_ms": own["planted_ms"], "busy_ms": own.get("busy_ms"), "fixed_ms": fixed_ms}
    expression = str(entry["cost"])
    if any(value is None and name in expression for name, value in names.items()):
        return None
    return max(0.0, float(eval(expression, {"__builtins__": {}}, names)))


def agrees(own, theirs, tolerance, smallest=0.0):
    """None where one of them is missing."""
    if own is None or theirs is None or own <= 0:
        return None
    return abs(own - theirs) <= max(tolerance * own, smallest)


def steps_agree(own, told):
    """By the median, or by the mean: where short and long steps take turns, the median jumps from the one to the other."""
    return any(agrees(own[figure], told[figure], STEP_TOLERANCE, SMALLEST_MS) for figure in ("median", "mean") if figure in own)


def busy_agree(own, report):
    """CUDA events around a step count the moments between its kernels, too."""
    told = report.get("gpu_busy_ms")
    if own is None or told is None:
        return None
    gaps = GAP_MS * sum(group["count"] for group in report["kernels"])
    return agrees(own, told, BUSY_TOLERANCE) or told <= own <= told + gaps


def idle_ms(report):
    busy = report.get("gpu_busy_ms")
    return None if busy is None else max(0.0, report["step_ms"]["mean"] - busy)


def told_apart(entry, report):
    """Findings about the program, and ids of those about what else goes on on this machine: they may be true, and no program can help it."""
    listed = [finding for finding in report["findings"] if finding["severity"] != "info"]
    foreign = OF_THE_MACHINE - set(entry.get("cause", []))
    return [finding for finding in listed if finding["id"] not in foreign], [finding["id"] for finding in listed if finding["id"] in foreign]


def judged(name, entry, own, report, fixed_ms=None, program=None):
    """One row of the table. `program`: the source that ran, when it is not today's."""
    findings, aside = told_apart(entry, report)
    row = {
        "verdict": findings[0]["id"] if findings else "", "aside": aside, "findings": [finding["id"] for finding in findings], "gains_ms": [finding.get("gain_ms") for finding in findings],
        "own": {key: own.get(key) for key in ("step_ms", "samples_per_second", "busy_ms", "data_ms", "planted_ms", "steps", "device")},
        "step_ms": report["step_ms"], "samples_per_second": report.get("samples_per_second"), "busy_ms": report.get("gpu_busy_ms"),
        "explained_idle": report.get("explained_idle_share"), "idle_ms": idle_ms(report), "unexplained_ms": report.get("unexplained_ms"),
        "overhead_share": report.get("overhead_share"),
        "step_agrees": steps_agree(own["step_ms"], report["step_ms"]),
        "samples_agree": agrees(own["samples_per_second"], report.get("samples_per_second"), SAMPLES_TOLERANCE) if entry.get("samples", True) else None,
        "busy_agrees": busy_agree(own.get("busy_ms"), report),
    }
    row.update(healthy_part(findings) if entry.get("healthy") else planted_part(name, entry, own, findings, fixed_ms, program))
    return row


def healthy_part(findings):
    return {"healthy": True, "alarms": [finding["id"] for finding in findings]}


def planted_part(name, entry, own, findings, fixed_ms, program):
    accepted = [finding for finding in findings if finding["id"] in entry["cause"]]
    right_line = None
    if entry.get("line", True):
        places = {(pathlib.Path(finding["file"]).name, finding["line"]) for finding in accepted}
        right_line = any((f"{name}.py", line) in places for line in truth.planted_lines(name, program))
    return {
        "healthy": False, "cause": entry["cause"][0], "right_cause": bool(findings) and findings[0]["id"] in entry["cause"], "right_line": right_line,
        "place": next((f"{pathlib.Path(finding['file']).name}:{finding['line']}" for finding in accepted if finding["line"]), ""),
        "charged_ms": accepted[0].get("charged_ms") if accepted else None, "gain_ms": accepted[0].get("gain_ms") if accepted else None,
        "known_ms": known_cost(entry, own, fixed_ms),
        "beside": [finding["id"] for finding in findings if finding["id"] not in entry["cause"] + entry.get("extra", [])],
    }
