"""The tables of what `fullwatt train` reaches, and whether the targets are met."""

import statistics

LIMIT_SHARE, LSTM_RATE, GPU_FACTOR, GROWTH, KEPT_SPEED = 0.95, 150_000, 5.0, 0.01, 0.97
STUDENT = 2.776  # 95 % of Student's t with four degrees of freedom: two means of three seeds each
TENTH = 0.1
WAYS = {  # what it is, precision
    "ours": ("ours, from disk", "bf16"),
    "ours_cached": ("ours, samples kept on the GPU (data.device_cache_gb)", "bf16"),
    "ours_no_graph": ("ours, without the graph (train.compile_model=false)", "bf16"),
    "ours_fp32": ("ours, from disk", "fp32"),
    "ours_0": ("ours, from disk, no dropout", "bf16"),
    "ours_fp32_0": ("ours, from disk, no dropout", "fp32"),
    "ours_cpu": ("ours, on the CPU", "fp32"),
    "plain": ("PyTorch, plain loop, from disk", "fp32"),
    "expert": ("PyTorch, tuned by hand and compiled (expert.py)", "bf16"),
    "eager": ("limit: PyTorch, samples on the device, eager", "bf16"),
    "graph": ("limit: the same, each step a CUDA graph", "bf16"),
    "compiled": ("limit: the same, compiled", "bf16"),
    "eager_fp32": ("limit: PyTorch, samples on the device, eager", "fp32"),
    "graph_fp32": ("limit: the same, each step a CUDA graph", "fp32"),
    "graph_0": ("limit: the same, no dropout", "bf16"),
    "graph_fp32_0": ("limit: the same, no dropout", "fp32"),
}
TITLES = {"keypoint": "The keypoint network, 3.5 million parameters", "lstm": "The LSTM of 64, windows of 60 × 12, dropout as in examples/lstm.yaml",
          "resnet50": "ResNet-50, noise, beside torchvision", "gpt2": "GPT-2, noise, beside transformers"}


def number(value, digits=0):
    return "–" if value is None else f"{value:,.{digits}f}"


def tick(met):
    return "–" if met is None else "yes" if met else "**no**"


def shown(rate):
    return number(rate, 0 if rate is None or rate >= 100 else 1)


def rate(rows, part, way):
    """The median, or None when it was not measured."""
    rates = rows.get(part, {}).get("ways", {}).get(way, {}).get("rates", [])
    return statistics.median(rates) if rates else None


def precision_of(rows, part, way):
    """As it was in force; PyTorch has that which it was told."""
    return rows[part]["ways"][way]["precision"] or WAYS[way][1]


def fastest(rows, part, ways):
    """(samples/s, way)"""
    found = [(rate(rows, part, way), way) for way in ways if rate(rows, part, way) is not None]
    return max(found) if found else (None, None)


def speed_goals(rows):
    found = []
    limit, way = fastest(rows, "keypoint", ["eager", "graph"])
    if limit and rate(rows, "keypoint", "ours"):
        share = rate(rows, "keypoint", "ours") / limit
        what = f"keypoint, from disk: of the limit without fusion ({way}, {shown(limit)} samples/s)"
        found.append((what, f"{100 * share:.1f} %", f"{100 * LIMIT_SHARE:.0f} %", share >= LIMIT_SHARE))
    if rate(rows, "lstm", "ours"):
        reached = rate(rows, "lstm", "ours")
        found.append(("LSTM as in examples/lstm.yaml, samples/s", shown(reached), number(LSTM_RATE), reached >= LSTM_RATE))
        best, way = fastest(rows, "lstm", ["ours", "ours_fp32", "ours_cached"])
        found.append((f"LSTM at its fastest ({WAYS[way][0]}, {precision_of(rows, 'lstm', way)}), samples/s", shown(best), number(LSTM_RATE), best >= LSTM_RATE))
    for part in ("keypoint", "lstm"):
        cpu, gpu = rate(rows, part, "ours_cpu"), rate(rows, part, "ours")
        if cpu and gpu:
            found.append((f"{part}: GPU against CPU", f"{gpu / cpu:.1f} ×", f"{GPU_FACTOR:.0f} ×", gpu / cpu >= GPU_FACTOR))
    return found


def compared(row):
    """How many times as fast bf16 is, the difference of its loss and the noise of the seeds; both as shares of fp32's loss."""
    speeds, losses = ({kind: [run[key] for run in row[kind]] for kind in ("fp32", "bf16")} for key in ("rate", "loss"))
    means = {kind: statistics.fmean(values) for kind, values in losses.items()}
    noise = STUDENT * sum(statistics.variance(values) / len(values) for values in losses.values()) ** 0.5
    factor = statistics.median(speeds["bf16"]) / statistics.median(speeds["fp32"])
    return factor, means["bf16"] / means["fp32"] - 1, noise / means["fp32"]


def precision_goals(rows):
    found = []
    for name, row in rows.items():
        if row["notes"] or row["failures"]:  # too few to tell
            continue
        factor, difference, noise = compared(row)
        wanted = name == "keypoint"  # for an LSTM of this size, whose kernels are short, it is only told
        found.append((f"{name}: bf16, times the speed of fp32", f"{factor:.2f}", "> 1" if wanted else "–", factor > 1 if wanted else None))
        within = f"± {100 * noise:.2f} % (noise of {len(row['bf16'])} seeds)"
        found.append((f"{name}: loss in bf16 beside fp32", f"{100 * difference:+.2f} %", within, abs(difference) <= noise if wanted else None))
    return found


def grown(memory, key, last_step):
    """From the first third to the last one, without the warm-up and without what comes after the last step; None when nobody looked."""
    values = [sample[key] for sample in memory if TENTH * last_step <= sample["step"] < last_step and sample[key] is not None]
    if len(values) < 2:
        return None
    third = max(1, len(values) // 3)
    return statistics.median(values[-third:]) / statistics.median(values[:third]) - 1


def rates_of_ends(lines):
    """Samples/s of the first and the last tenth of the steps."""
    first, last = lines[0]["step"], lines[-1]["step"]
    reach = TENTH * (last - first)
    ends = [[line for line in lines if line["step"] <= first + reach], [line for line in lines if line["step"] >= last - reach]]
    return [sum(line["samples"] for line in part) / sum(line["seconds"] for line in part) for part in ends]


def endurance_goals(rows):
    found = []
    for name, row in rows.items():
        if not row["lines"]:
            continue
        last_step = row["lines"][-1]["step"]
        for key, what in (("host_mb", "memory of the host"), ("device_mb", "memory of the device")):
            growth = grown(row["memory"], key, last_step)
            if growth is not None:
                found.append((f"{name}, {last_step:,} steps: {what} grows", f"{100 * growth:+.2f} %", f"{100 * GROWTH:.0f} %", growth <= GROWTH))
        first, last = rates_of_ends(row["lines"])
        kept = last / first
        found.append((f"{name}, {last_step:,} steps: speed at the end", f"{100 * kept:.1f} % of the beginning", f"{100 * KEPT_SPEED:.0f} %", kept >= KEPT_SPEED))
    return found


def failed(rows):
    """Trainings of ours that ended otherwise than they should, or not in time."""
    ways = [(f"{part} {way}", row) for part in TITLES for way, row in rows.get(part, {}).get("ways", {}).items() if way.startswith("ours")]
    others = [(f"{part} {name}", row) for part in ("precision", "endurance") for name, row in rows.get(part, {}).items()]
    return [what for what, row in ways + others if row["failures"]]


def goals(rows):
    """(what, reached, target, met)"""
    ended = ("trainings of ours that failed", ", ".join(failed(rows)) or "none", "none", not failed(rows))
    return [ended, *speed_goals(rows), *precision_goals(rows.get("precision", {})), *endurance_goals(rows.get("endurance", {}))]


def spread(rates):
    return f"{shown(min(rates))} – {shown(max(rates))}" if len(rates) > 1 else "–"


def way_lines(rows, part):
    lines = ["", f"## {TITLES[part]}", "", f"Batches of {rows[part]['batch']}.", "",
             "| | precision | samples/s | least – most | of ours | |", "|---|---|---|---|---|---|"]
    measured, ours = rows[part]["ways"], rate(rows, part, "ours")
    for way, (what, _) in WAYS.items():
        if way in measured:
            reached = rate(rows, part, way)
            share = f"{100 * reached / ours:.0f} %" if reached and ours else "–"
            row = measured[way]
            lines.append(f"| {what} | {precision_of(rows, part, way)} | {shown(reached)} | {spread(row['rates'])} | {share} | {in_cell(row)} |")
    return lines


def in_cell(row):
    """Notes, and why runs failed."""
    reasons = [*row["notes"], *(f"failed: {reason}" for reason in row["failures"])]
    return "; ".join(dict.fromkeys(reasons)).replace("|", "/").replace("\n", " ")


def precision_lines(rows):
    lines = ["", "## Precision", "", f"Whole trainings from {max(len(row['bf16']) for row in rows.values())} seeds; the loss is the mean of the last epoch.", "",
             "| | epochs | precision | samples/s | loss, seed by seed | |", "|---|---|---|---|---|---|"]
    for name, row in rows.items():
        for kind in ("fp32", "bf16"):
            speeds = [run["rate"] for run in row[kind]]
            losses = ", ".join(f"{run['loss']:.5g}" for run in row[kind]) or "–"
            lines.append(f"| {name} | {row['epochs']} | {kind} | {shown(statistics.median(speeds) if speeds else None)} | {losses} | {in_cell(row)} |")
    return lines


def endurance_lines(rows):
    lines = ["", "## Long trainings", "", "| | steps | samples/s, first tenth | last tenth | MB of the host, first – last | MB of the device, first – last | |",
             f"|{'---|' * 7}"]
    for name, row in rows.items():
        if not row["lines"]:
            lines.append(f"| {name} | – | – | – | – | – | {in_cell(row)} |")
            continue
        last_step = row["lines"][-1]["step"]
        kept = [sample for sample in row["memory"] if TENTH * last_step <= sample["step"] < last_step]
        memory = [f"{number(kept[0][key])} – {number(kept[-1][key])}" if kept and kept[0][key] is not None else "–" for key in ("host_mb", "device_mb")]
        first, last = rates_of_ends(row["lines"])
        lines.append(f"| {name} | {last_step:,} | {shown(first)} | {shown(last)} | {' | '.join(memory)} | |")
    return lines


def table(rows, head):
    reached = goals(rows)
    lines = ["# What `fullwatt train` reaches", "", head, "",
             "Made by `bench/train.py`. Samples/s of the steady state, without the first second and the first lines; files lie in the page cache. Median of runs that "
             "alternate. fp32 may use TF32. A limit has its samples on the device already and reads nothing; `bench/train_limits.py` is its program. The LSTM's expert.py "
             "cuts its windows itself instead of reading them.", "",
             "| | reached | target | met |", "|---|---|---|---|", *[f"| {what} | {value} | {target} | {tick(met)} |" for what, value, target, met in reached]]
    for part in TITLES:
        if part in rows:
            lines += way_lines(rows, part)
    if "precision" in rows:
        lines += precision_lines(rows["precision"])
    if "endurance" in rows:
        lines += endurance_lines(rows["endurance"])
    return "\n".join(lines) + "\n", any(met is False for _, _, _, met in reached)
