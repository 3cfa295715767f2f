"""The table of fullwatt's own cost, and whether the targets are met."""

import statistics

WHOLE, PROFILER_SHARE, BARE_NOISE = 0.01, 0.2, 0.02


def ratios(repeats, over, under):
    """over/under − 1 within each repeat; each is a pair of way and figure."""
    found = []
    for repeat in repeats:
        a, b = (repeat.get(way, {}).get(figure) for way, figure in (over, under))
        if a and b:
            found.append(a / b - 1)
    return sorted(found)


def middle(values):
    return statistics.median(values) if values else None


def percent(values):
    """Median and range of the repeats."""
    if not values:
        return "–"
    text = f"{100 * middle(values):+.2f} %"
    return text if len(values) == 1 else f"{text} ({100 * values[0]:+.2f} … {100 * values[-1]:+.2f})"


def figures(repeats):
    """All ratios of one workload."""
    steps = [repeat["plain"]["step"] for repeat in repeats if repeat.get("plain", {}).get("step")]
    return {
        "step": middle(steps),
        "times": ratios(repeats, ("windowed", "times"), ("windowed", "outside")), "causes": ratios(repeats, ("windowed", "causes"), ("windowed", "outside")),
        "after": ratios(repeats, ("windowed", "after"), ("windowed", "before")), "whole": sorted(repeat["whole"]["share"] for repeat in repeats if "whole" in repeat),
        "bare": ratios(repeats, ("bare_cupti", "inside"), ("bare_cupti", "outside")),
        "cuda": ratios(repeats, ("profiler_cuda", "inside"), ("profiler_cuda", "outside")),
        "both": ratios(repeats, ("profiler_both", "inside"), ("profiler_both", "outside")),
    }


def line(name, row):
    step = "–" if row["step"] is None else f"{row['step']:.3f}"
    parts = [percent(row[key]) for key in ("times", "causes", "after", "whole", "bare", "cuda", "both")]
    return f"| {name} | {step} | {' | '.join(parts)} |"


def targets(rows):
    """(what, reached, target, met or None)"""
    whole = [middle(row["whole"]) for row in rows.values() if row["whole"]]
    pairs = [(middle(row["times"]), middle(row["both"])) for row in rows.values() if row["times"] and row["both"] and middle(row["both"]) > 0.05]
    bare = [middle(row["times"]) - middle(row["bare"]) for row in rows.values() if row["times"] and row["bare"]]
    return [
        ("a whole run, the worst", f"{100 * max(whole):.2f} %" if whole else "–", "1 %", max(whole) <= WHOLE if whole else None),
        ("in a window of times, of torch.profiler's cost", ", ".join(f"{a / b:.2f}" for a, b in pairs) or "–", "0.2",
         all(a <= PROFILER_SHARE * b for a, b in pairs) if pairs else None),
        ("in a window of times, beyond bare CUPTI, the worst", f"{100 * max(bare):+.2f} %" if bare else "–", "2 % (noise)", max(bare) <= BARE_NOISE if bare else None),
    ]


def table(all_repeats, head, options):
    rows = {name: figures(repeats) for name, repeats in all_repeats.items()}
    reached = targets(rows)
    marks = {None: "–", True: "yes", False: "**no**"}
    lines = ["# What recording costs", "", head, "",
             f"Made by `bench/overhead.py`: {options.repeats} repeats of {options.seconds:.0f} s, all ways in random order within each, a process each. Steps are the program's own, by its own clock. "
             "Windows, bare CUPTI and torch.profiler are held against the steps before and after them in the same run (the mean of the middle half). Shown is the median of the repeats, in brackets the least and "
             f"the largest. The whole run is one of {options.whole:.0f} s: what the steps in and around its windows took beyond the mean of the others, and the hooks of every step (`hooks.py`), of its length.", "",
             "| | reached | target | met |", "|---|---|---|---|", *[f"| {what} | {value} | {target} | {marks[met]} |" for what, value, target, met in reached], "",
             "| workload | plain step, ms | window of times | window of causes | after the windows | whole run | bare CUPTI | torch.profiler CUDA | "
             "torch.profiler CPU+CUDA |", "|---|---|---|---|---|---|---|---|---|", *[line(name, row) for name, row in rows.items()]]
    return "\n".join(lines) + "\n", any(met is False for _, _, _, met in reached)
