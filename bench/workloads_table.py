"""The table of all workloads, and whether the targets are met."""

RIGHT_CAUSE, RIGHT_LINE, EXPLAINED_IDLE, AGREEING = 0.95, 0.95, 0.95, 0.95


def number(value, digits=2):
    return "–" if value is None else f"{value:.{digits}f}"


def tick(value):
    return "–" if value is None else "yes" if value else "**no**"


def in_short(row):
    if "skipped" in row or "failed" in row:
        return "skipped: " + row["skipped"] if "skipped" in row else "failed: " + row["failed"]
    if row["healthy"]:
        return f"healthy, alarms: {', '.join(row['alarms']) or 'none'}"
    return f"verdict {row['verdict'] or 'none'} ({'right' if row['right_cause'] else 'wrong, planted is ' + row['cause']}), line {tick(row['right_line'])} {row['place']}"


def all_findings(row):
    told = ", ".join(f"{name} {number(gain)} ms" for name, gain in zip(row["findings"], row["gains_ms"]))
    return f"of {number(row['step_ms']['mean'])} ms: {told or 'no finding'}"


def share(values):
    values = [value for value in values if value is not None]
    return (sum(values) / len(values) if values else None), len(values)


def explained(ran):
    """Of all idle milliseconds of all runs together."""
    idle = sum(row["idle_ms"] for row in ran if row["explained_idle"] is not None and row["idle_ms"])
    told = sum(row["idle_ms"] * row["explained_idle"] for row in ran if row["explained_idle"] is not None and row["idle_ms"])
    return (told / idle if idle else None), sum(1 for row in ran if row["explained_idle"] is not None)


def targets(rows, verdicts_only=False):
    """Lines for people, and whether one was missed."""
    ran = [row for row in rows.values() if "verdict" in row]
    planted = [row for row in ran if not row["healthy"]]
    measures = [
        ("right cause", *share([row["right_cause"] for row in planted]), RIGHT_CAUSE),
        ("right line", *share([row["right_line"] for row in planted]), RIGHT_LINE),
        ("idle milliseconds explained", *explained(ran), EXPLAINED_IDLE),
        ("healthy without a finding", *share([not row["alarms"] for row in ran if row["healthy"]]), 1.0),
    ]
    if not verdicts_only:
        measures += [
            ("step time agrees with the program's own", *share([row["step_agrees"] for row in ran]), AGREEING),
            ("samples/s agree", *share([row["samples_agree"] for row in ran]), AGREEING),
            ("busy time agrees with CUDA events", *share([row["busy_agrees"] for row in ran]), AGREEING),
        ]
    lines, missed = [], False
    for what, value, count, least in measures:
        met = None if value is None else value >= least
        missed = missed or met is False
        lines.append(f"| {what} | {'–' if value is None else f'{100 * value:.1f} %'} of {count} | {100 * least:.0f} % | {tick(met)} |")
    failed = sorted(name for name, row in rows.items() if "failed" in row)
    lines.append(f"| runs that failed | {', '.join(failed) or 'none'} | none | {tick(not failed)} |")
    return lines, missed or bool(failed)


def planted_line(name, row):
    own = row["own"]
    return (f"| {name} | {row['cause']} | {row['verdict'] or 'none'} | {tick(row['right_cause'])} | {row['place'] or '–'} | {tick(row['right_line'])} | "
            f"{number(row['charged_ms'])} | {number(row['known_ms'])} | {number(row['gain_ms'])} | {number(row['explained_idle'])} | "
            f"{number(own['step_ms']['median'])} / {number(row['step_ms']['median'])} | {number(own['samples_per_second'], 0)} / {number(row['samples_per_second'], 0)} | "
            f"{number(own['busy_ms'])} / {number(row['busy_ms'])} | {', '.join(row['beside'] + row['aside']) or '–'} |")


def healthy_line(name, row):
    own = row["own"]
    return (f"| {name} | {', '.join(row['alarms']) or 'none'} | {number(row['explained_idle'])} | {number(own['step_ms']['median'])} / {number(row['step_ms']['median'])} | "
            f"{number(own['samples_per_second'], 0)} / {number(row['samples_per_second'], 0)} | {number(own['busy_ms'])} / {number(row['busy_ms'])} |")


def table(rows, summary, head):
    """Figures as "own / fullwatt's" are of the same run."""
    lines = ["# The workloads under `fullwatt run`", "", head, "",
             "Made by `bench/workloads.py`; what is planted where says `tests/workloads/workloads.yaml`. Milliseconds are of one step. A figure pair is the program's own "
             "measurement and fullwatt's, of the same run.", "", "| | reached | target | met |", "|---|---|---|---|", *summary, "", "## Planted", "",
             "| workload | planted | verdict | right | line named | right | charged | known | gain | idle explained | step | samples/s | busy | also found |",
             "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"]
    lines += [planted_line(name, row) for name, row in sorted(rows.items()) if "verdict" in row and not row["healthy"]]
    lines += ["", "## Healthy", "", "| workload | findings | idle explained | step | samples/s | busy |", "|---|---|---|---|---|---|"]
    lines += [healthy_line(name, row) for name, row in sorted(rows.items()) if "verdict" in row and row["healthy"]]
    rest = [f"- {name}: {in_short(row).splitlines()[0]}" for name, row in sorted(rows.items()) if "verdict" not in row]
    return "\n".join(lines + (["", "## Not run", "", *rest] if rest else [])) + "\n"
