"""The tables of what `tune` reaches, and whether the targets are met."""

import statistics

KEYPOINT_RATE, LSTM_SPEEDUP, FOUND_S, FOUND_STARTS = 14_000, 3.5, 300, 12
PREDICTION_ERROR, INSIDE, SLOWER, MEMORY_ERROR = 0.10, 0.9, 0.01, 0.03


def number(value, digits=0):
    return "–" if value is None else f"{value:,.{digits}f}"


def tick(met):
    return "–" if met is None else "yes" if met else "**no**"


def tunings(rows):
    """All answers of `tune` in all parts."""
    found = [rows[name]["tuning"] for name in ("lstm", "keypoint") if name in rows]
    return found + [row["tuning"] for part in ("costs", "tuned") for row in rows.get(part, {}).values()]


def predictions(rows):
    """(step before, predicted, measured) of fixes that take away a cost, and (low, high, measured) of those that change kernels."""
    costs, intervals = [], []
    for tuning in tunings(rows):
        for tried in tuning["tried"]:
            if tried["before_ms"] is None:
                continue
            measured, said = tried["before_ms"] - tried["after_ms"], tried["predicted"]
            if said["low_ms"] is not None:
                intervals.append((said["low_ms"], said["high_ms"], measured))
            elif said["ms"] is not None:
                costs.append((tried["before_ms"], said["ms"], measured))
    return costs, intervals


def has_rates(rows, name):
    return name in rows and rows[name]["plain"] is not None


def goals(rows):
    """(what, reached, target, met)"""
    found = []
    for name in ("lstm", "keypoint"):
        if name in rows:
            tuning = rows[name]["tuning"]
            found.append((f"{name}: finding the plan", f"{tuning['search_s']:.0f} s, {tuning['search_starts']} starts", f"{FOUND_S} s, {FOUND_STARTS} starts",
                          tuning["search_s"] <= FOUND_S and tuning["search_starts"] <= FOUND_STARTS))
            found.append((f"{name}: loss", tuning["loss"]["verdict"], "not-worse", tuning["loss"]["verdict"] == "not-worse"))
    if has_rates(rows, "lstm"):
        factor = (rows["lstm"]["plan"] or 0) / rows["lstm"]["plain"]
        found.append(("LSTM, times its own speed", f"{factor:.2f}" if factor else "no plan is proved", f"{LSTM_SPEEDUP}", factor >= LSTM_SPEEDUP))
    if has_rates(rows, "keypoint"):
        rate = rows["keypoint"]["plan"]
        found.append(("keypoint, samples/s", number(rate) if rate else "no plan is proved", number(KEYPOINT_RATE), (rate or 0) >= KEYPOINT_RATE))
    if "targets" in rows:
        error = rows["targets"]["predicted_ms"] / rows["targets"]["after_ms"] - 1
        found.append(("targets read instead of recomputed: predicted step", f"{100 * error:+.1f} % off", "10 %", abs(error) <= PREDICTION_ERROR))
    costs, intervals = predictions(rows)
    if costs:
        error = statistics.median(abs(predicted - measured) / before for before, predicted, measured in costs)
        found.append((f"fixes that take away a cost ({len(costs)}), median error", f"{100 * error:.1f} % of the step", "10 %", error <= PREDICTION_ERROR))
    if intervals:
        inside = sum(low <= measured <= high for low, high, measured in intervals) / len(intervals)
        found.append((f"fixes that change kernels ({len(intervals)}), inside their interval", f"{100 * inside:.0f} %", "90 %", inside >= INSIDE))
    tried = [batch for batches in rows.get("memory", {}).values() for batch in batches]
    if tried:
        failed = sum(batch.get("out_of_memory", False) for batch in tried)
        found.append((f"batches that ran out of memory, of {len(tried)}", f"{failed}", "0", failed == 0))
    errors = [abs(memory_error(batch)) for batch in tried if memory_error(batch) is not None]
    if errors:
        error = statistics.median(errors)
        found.append((f"memory of a larger batch ({len(errors)}), median error", f"{100 * error:.1f} %", "3 %", error <= MEMORY_ERROR))
    for name, row in rows.get("tuned", {}).items():
        if row["pairs"]:
            slower = statistics.median(after / before for before, after in row["pairs"]) - 1
            found.append((f"{name}, with its plan", f"{100 * slower:+.1f} % of the step", "+1 %", slower <= SLOWER))
        else:
            found.append((f"{name}, with its plan", "no plan", "+1 %", True))
    return found


def memory_error(batch):
    """Of the prediction; None where there was none, or nothing to compare it with."""
    return batch["predicted_bytes"] / batch["peak_bytes"] - 1 if batch["predicted_bytes"] and batch["peak_bytes"] else None


def memory_lines(rows):
    lines = ["", "## Memory by batch size", "", "All that the training has in tensors at once; predicted by a line through the two largest batches before. With GB: a card of so many is simulated; "
             "such searches run side by side, and share what the GPU makes in a second.", "",
             "| model | batch | predicted GB | measured GB | error | samples/s |", "|---|---|---|---|---|---|"]
    for family, batches in rows.items():
        for batch in batches:
            said, error = batch["predicted_bytes"], memory_error(batch)
            lines.append(f"| {family} | {batch['size']} | {number(said and said / 1e9, 2)} | {number(batch['peak_bytes'] / 1e9, 2) if batch['peak_bytes'] else 'out of memory'} | "
                         f"{f'{100 * error:+.1f} %' if error is not None else '–'} | {number(batch['samples_per_second'])} |")
    return lines


def in_short(row):
    fixes = ", ".join(fix["id"] for fix in row["tuning"]["plan"]["fixes"]) or "none"
    return f"fixes: {fixes}; {row['seconds']:.0f} s"


def predicted(said):
    """An interval for fixes that change kernels, else what the cost was said to be."""
    if said["low_ms"] is not None:
        return f"{number(said['low_ms'], 2)} … {number(said['high_ms'], 2)}"
    return number(said["ms"], 2)


def tried_lines(name, tuning):
    lines = ["", f"## {name}", "", "| fix | kept | ms a step before | after | predicted | measured | reason |", "|---|---|---|---|---|---|---|"]
    return lines + [tried_line(tried["fix"]["id"], tried) for tried in tuning["tried"]]


def tried_line(name, tried):
    gain = None if tried["before_ms"] is None else tried["before_ms"] - tried["after_ms"]
    return (f"| {name} | {'yes' if tried['kept'] else 'no'} | {number(tried['before_ms'], 2)} | {number(tried['after_ms'], 2)} | {predicted(tried['predicted'])} | "
            f"{number(gain, 2)} | {tried['reason']} |")


def cost_lines(rows):
    lines = ["", "## Trainings with one cost", "", "Each with the only fix that `tune` was left.", "",
             "| training, fix | kept | ms a step before | after | predicted gain | measured | reason |", "|---|---|---|---|---|---|---|"]
    for name, row in rows.items():
        lines += [tried_line(name, tried) for tried in row["tuning"]["tried"]] or [f"| {name} | – | – | – | – | – | not tried |"]
    return lines


def example_lines(rows):
    lines = ["", "## The examples", "", "Samples/s of the steady state; the interval is that of the proof.", "",
             "| example | as written | with the plan | expert | speed-up (95 %) | loss | finding and proving took |", "|---|---|---|---|---|---|---|"]
    for name in ("lstm", "keypoint"):
        if name in rows:
            row, speed, loss = rows[name], rows[name]["tuning"]["speed"], rows[name]["tuning"]["loss"]
            lines.append(f"| {name} | {number(row['plain'])} | {number(row['plan'])} | {number(row['expert'])} | {speed['speedup']:.2f} ({speed['low']:.2f} … {speed['high']:.2f}) | "
                         f"{loss['verdict']} over {loss['steps']} steps, {loss['pairs']} seeds | {row['seconds']:.0f} s |")
    return lines


def table(rows, head):
    reached = goals(rows)
    lines = ["# What `tune` reaches", "", head, "", "Made by `bench/tune.py`.", "", "| | reached | target | met |", "|---|---|---|---|",
             *[f"| {what} | {value} | {target} | {tick(met)} |" for what, value, target, met in reached]]
    if "targets" in rows:
        row = rows["targets"]
        lines += ["", f"The line that recomputes its targets is {row['file']}:{row['line']}: {number(row['charged_ms'], 1)} of {number(row['before_ms'], 1)} ms a step. Predicted "
                  f"without it: {number(row['predicted_ms'], 1)} ms; measured: {number(row['after_ms'], 1)} ms."]
    if "lstm" in rows or "keypoint" in rows:
        lines += example_lines(rows)
    if "memory" in rows:
        lines += memory_lines(rows["memory"])
    for name in ("lstm", "keypoint"):
        if name in rows:
            lines += tried_lines(name, rows[name]["tuning"])
    if "costs" in rows:
        lines += cost_lines(rows["costs"])
    for name, row in rows.get("tuned", {}).items():
        lines += tried_lines(f"{name}, tuned already", row["tuning"])
    return "\n".join(lines) + "\n", any(met is False for _, _, _, met in reached)
