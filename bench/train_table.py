"""The tables of what `fullwatt train` reaches, and whether the targets are met."""

import statistics

LIMIT_SHARE, LSTM_RATE, GPU_FACTOR, GROWTH, KEPT_SPEED = 0.95, 150_000, 5.0, 0.01, 0.97
STEPS, CHECKPOINTS = 10_000, 10  # of a long training
DATA = {"keypoint": "batches of 256 × 3 × 160 × 320", "lstm": "batches of 128 × 60 × 12, hidden 64"}  # that the targets are for
SEEDS = 3
STUDENT = {2: 4.303, 4: 2.776}  # 95 % of Student's t by degrees of freedom: three seeds, each in both precisions; two means of three seeds each
NOT_WORSE = 0.02  # so much higher a loss in bf16 would count, however much the seeds differ
NOT_WORSE_TEXT = f"not higher by the noise of the seeds, nor by {100 * NOT_WORSE:.0f} %"
TENTH = 0.1
WAYS = {  # what it is, precision
    "ours": ("ours, from disk", "bf16"),
    "ours_cached": ("ours, samples kept on the GPU (data.device_cache_gb)", "bf16"),
    "ours_no_graph": ("ours, without the graph (train.compile_model=false)", "bf16"),
    "ours_fp32": ("ours, from disk", "fp32"),
    "ours_bf16": ("ours, from disk", "bf16"),
    "ours_0": ("ours, from disk, no dropout", "fp32"),
    "ours_bf16_0": ("ours, from disk, no dropout", "bf16"),
    "ours_cpu": ("ours, on the CPU", "fp32"),
    "plain": ("PyTorch, plain loop, from disk", "fp32"),
    "expert": ("PyTorch, tuned by hand and compiled (expert.py)", "bf16"),
    "eager": ("limit: PyTorch, samples on the device, eager", "bf16"),
    "graph": ("limit: the same, each step a CUDA graph", "bf16"),
    "compiled": ("limit: the same, compiled", "bf16"),
    "compiled_graph": ("limit: the same, compiled, each step a CUDA graph", "bf16"),
    "eager_fp32": ("limit: PyTorch, samples on the device, eager", "fp32"),
    "graph_fp32": ("limit: the same, each step a CUDA graph", "fp32"),
    "graph_0": ("limit: the same, no dropout", "bf16"),
    "graph_fp32_0": ("limit: the same, no dropout", "fp32"),
}
TITLES = {"keypoint": "The keypoint network, 3.5 million parameters", "lstm": "The LSTM, dropout as in examples/lstm.yaml",
          "resnet50": "ResNet-50 on noise, beside torchvision's", "gpt2": "GPT-2 on noise, beside transformers'"}


def batches_of(batch, shape):
    return f"batches of {' × '.join(map(str, (batch, *shape)))}"


def number(value, digits=0):
    return "–" if value is None else f"{value:,.{digits}f}"


def tick(met):
    return "yes" if met else "**no**"


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


def not_measured(what, target, reason):
    """A goal that nobody can say is met."""
    return what, f"not measured: {reason}", target, False


def lacking(rows, part, ways):
    """Why some of them were not measured; empty when all were."""
    measured = rows[part]["ways"]
    return "; ".join(f"{way}: {in_cell(measured[way]) if way in measured else 'it did not run'}" for way in ways if rate(rows, part, way) is None)


def data_goals(rows):
    """That all parts measured what the targets are for."""
    goals = []
    for name, wanted in DATA.items():
        places = [rows, rows.get("precision", {}), rows.get("endurance", {})]
        found = {place[name]["data"] for place in places if name in place}
        if found:
            goals.append((f"{name}: data", ", and ".join(sorted(found)), wanted, found == {wanted}))
    return goals


def limit_goal(rows):
    what, target = "keypoint, from disk: of the limit without fusion", f"{100 * LIMIT_SHARE:.0f} %"
    reason = lacking(rows, "keypoint", ["ours", "eager", "graph"])
    if reason:
        return not_measured(what, target, reason)
    limit, way = fastest(rows, "keypoint", ["eager", "graph"])
    share = rate(rows, "keypoint", "ours") / limit
    return f"{what} ({way}, {shown(limit)} samples/s)", f"{100 * share:.1f} %", target, share >= LIMIT_SHARE


def lstm_goals(rows):
    what, target = "LSTM, from disk, as in examples/lstm.yaml, samples/s", number(LSTM_RATE)
    reason = lacking(rows, "lstm", ["ours"])
    if reason:
        return [not_measured(what, target, reason)]
    reached = rate(rows, "lstm", "ours")
    return [(f"{what} ({precision_of(rows, 'lstm', 'ours')})", shown(reached), target, reached >= LSTM_RATE)]


def gpu_goal(rows, part):
    what, target = f"{part}: GPU against CPU", f"{GPU_FACTOR:.0f} ×"
    reason = lacking(rows, part, ["ours", "ours_cpu"])
    if reason:
        return not_measured(what, target, reason)
    factor = rate(rows, part, "ours") / rate(rows, part, "ours_cpu")
    return what, f"{factor:.1f} ×", target, factor >= GPU_FACTOR


def speed_goals(rows):
    keypoint = [limit_goal(rows), gpu_goal(rows, "keypoint")] if "keypoint" in rows else []
    lstm = [*lstm_goals(rows), gpu_goal(rows, "lstm")] if "lstm" in rows else []
    return keypoint + lstm


def compared(row):
    """How many times as fast bf16 is; how much higher its loss is as a share of fp32's, seed by seed: mean and half of the 95 % interval; and what the seeds alone make."""
    speeds, losses = ({kind: [run[key] for run in row[kind]] for kind in ("fp32", "bf16")} for key in ("rate", "loss"))
    higher = [bf16 / fp32 - 1 for bf16, fp32 in zip(losses["bf16"], losses["fp32"])]
    factor = statistics.median(speeds["bf16"]) / statistics.median(speeds["fp32"])
    noise = STUDENT[4] * sum(statistics.variance(values) / len(values) for values in losses.values()) ** 0.5 / statistics.fmean(losses["fp32"])
    return factor, statistics.fmean(higher), STUDENT[2] * statistics.stdev(higher) / len(higher) ** 0.5, noise


def precision_goals(rows):
    found = []
    for name, row in rows.items():
        speed, loss = f"{name}: train.amp=true takes the faster precision", f"{name}: loss in bf16 beside fp32"
        if min(len(row["fp32"]), len(row["bf16"])) < SEEDS:
            reason = f"not all of {SEEDS} seeds, {in_cell(row)}"
            found += [not_measured(speed, "the faster one", reason), not_measured(loss, NOT_WORSE_TEXT, reason)]
            continue
        factor, higher, half, noise = compared(row)
        most = min(noise, NOT_WORSE)
        found.append((speed, f"{row['taken']}; bf16 is {factor:.2f} times as fast as fp32", "the faster one", row["taken"] == ("bf16" if factor > 1 else "fp32")))
        found.append((loss, f"{100 * higher:+.2f} % ({100 * (higher - half):+.2f} … {100 * (higher + half):+.2f})", f"not higher by {100 * most:.2f} % (the noise of the seeds, {100 * NOT_WORSE:.0f} % at most)", higher + half <= most))
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


def at_least(count, least):
    return number(count), count >= least


def growth_of(row, key):
    growth = grown(row["memory"], key, row["lines"][-1]["step"])
    return None if growth is None else (f"{100 * growth:+.2f} %", growth <= GROWTH)


def pace_of(row):
    first, last = rates_of_ends(row["lines"])
    return f"{100 * last / first:.1f} % of the beginning", last / first >= KEPT_SPEED


LONG_TRAINING = [  # what, target, and a function that returns what was reached and whether that is enough, or None when nobody looked
    ("steps", number(STEPS), lambda row: at_least(row["lines"][-1]["step"], STEPS)),
    ("checkpoints", number(CHECKPOINTS), lambda row: at_least(row["checkpoints"], CHECKPOINTS)),
    ("memory of the host grows", f"{100 * GROWTH:.0f} %", lambda row: growth_of(row, "host_mb")),
    ("memory of the device grows", f"{100 * GROWTH:.0f} %", lambda row: growth_of(row, "device_mb")),
    ("speed at the end", f"{100 * KEPT_SPEED:.0f} %", pace_of),
]


def endurance_goals(rows):
    found = []
    for name, row in rows.items():
        for what, target, judge in LONG_TRAINING:
            label, judged = f"{name}, long training: {what}", judge(row) if row["lines"] else None
            found.append((label, judged[0], target, judged[1]) if judged else not_measured(label, target, in_cell(row) or "nobody saw enough of it"))
    return found


def failed(rows):
    """Trainings of ours that ended otherwise than they should, or not in time."""
    ways = [(f"{part} {way}", row) for part in TITLES for way, row in rows.get(part, {}).get("ways", {}).items() if way.startswith("ours")]
    others = [(f"{part} {name}", row) for part in ("precision", "endurance") for name, row in rows.get(part, {}).items()]
    return [what for what, row in ways + others if row["failures"]]


def goals(rows):
    """(what, reached, target, met)"""
    ended = ("trainings of ours that failed", ", ".join(failed(rows)) or "none", "none", not failed(rows))
    return [ended, *data_goals(rows), *speed_goals(rows), *precision_goals(rows.get("precision", {})), *endurance_goals(rows.get("endurance", {}))]


def spread(rates):
    return f"{shown(min(rates))} – {shown(max(rates))}" if len(rates) > 1 else "–"


def way_lines(rows, part):
    lines = ["", f"## {TITLES[part]}", "", f"In {rows[part]['data']}.", "",
             "| | precision | samples/s | least – most | of ours | |", "|---|---|---|---|---|---|"]
    measured, ours = rows[part]["ways"], rate(rows, part, "ours")
    for way, (what, _) in WAYS.items():
        if way in measured:
            reached, row = rate(rows, part, way), measured[way]
            share = f"{100 * reached / ours:.0f} %" if reached and ours else "–"
            speed = "not measured" if reached is None else shown(reached)
            lines.append(f"| {what} | {precision_of(rows, part, way)} | {speed} | {spread(row['rates'])} | {share} | {in_cell(row)} |")
    return lines


def in_cell(row):
    """Notes, and why runs failed."""
    reasons = [*row["notes"], *(f"failed: {reason}" for reason in row["failures"])]
    return "; ".join(dict.fromkeys(reasons)).replace("|", "/").replace("\n", " ")


def precision_lines(rows):
    lines = ["", "## Precision", "", f"Whole trainings from {SEEDS} seeds; the loss is the mean of the last epoch, compared seed by seed.", "",
             "| | epochs | precision | samples/s | loss, seed by seed | |", "|---|---|---|---|---|---|"]
    for name, row in rows.items():
        for kind in ("fp32", "bf16"):
            speeds = [run["rate"] for run in row[kind]]
            losses = ", ".join(f"{run['loss']:.5g}" for run in row[kind]) or "–"
            lines.append(f"| {name} | {row['epochs']} | {kind} | {shown(statistics.median(speeds)) if speeds else 'not measured'} | {losses} | {in_cell(row)} |")
    return lines


def endurance_lines(rows):
    lines = ["", "## Long trainings", "", "| | steps | checkpoints | samples/s, first tenth | last tenth | MB of the host, first – last | MB of the device, first – last | |",
             f"|{'---|' * 8}"]
    for name, row in rows.items():
        if not row["lines"]:
            lines.append(f"| {name} | not measured | – | – | – | – | – | {in_cell(row)} |")
            continue
        last_step = row["lines"][-1]["step"]
        kept = [sample for sample in row["memory"] if TENTH * last_step <= sample["step"] < last_step]
        memory = [f"{number(kept[0][key])} – {number(kept[-1][key])}" if kept and kept[0][key] is not None else "–" for key in ("host_mb", "device_mb")]
        first, last = rates_of_ends(row["lines"])
        lines.append(f"| {name} | {last_step:,} | {row['checkpoints']} | {shown(first)} | {shown(last)} | {' | '.join(memory)} | {in_cell(row)} |")
    return lines


def heads_of(rows):
    """Machine, versions and commit; where parts were measured at several, which ones."""
    parts = {}
    for part, heads in rows["heads"].items():
        for head in heads:
            parts.setdefault(head, []).append(part)
    return [head if len(parts) == 1 else f"- {', '.join(names)}: {head}" for head, names in parts.items()]


def table(rows):
    reached = goals(rows)
    lines = ["# What `fullwatt train` reaches", "", *heads_of(rows), "",
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
    return "\n".join(lines) + "\n", not all(met for *_, met in reached)
