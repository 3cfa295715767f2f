"""The table of fullwatt's own cost, and whether the targets are met."""

import statistics

MEDIAN, WORST, WORST_US, WHOLE, PROFILER_SHARE = 0.005, 0.01, 10.0, 0.01, 0.2
LEAST_RELAYS = 6  # an interval needs as many
TELLING = 0.05  # where torch.profiler costs less, a share of its cost says nothing
WINDOWS = {"times": "window of times", "causes": "window of causes", "bare_cupti": "bare CUPTI", "profiler_cuda": "torch.profiler CUDA",
           "profiler_both": "torch.profiler CPU+CUDA", "profiler_stacks": "the same with stacks"}
MARKS = {None: "not decided: noise", True: "yes", False: "**no**"}


class Cost:
    """A median with the 95 % interval of the order statistics: no assumption about how the noise is spread."""

    def __init__(self, values):
        values = sorted(values)
        reach = 0.98 * len(values) ** 0.5
        low, high = round(len(values) / 2 - reach) - 1, round(len(values) / 2 + reach)
        self.middle = statistics.median(values)
        self.low, self.high = values[max(0, low)], values[min(len(values) - 1, high)]
        self.count = len(values)

    def at_most(self, limit):
        """Whether it is below the limit: None where the noise does not let anybody say."""
        return True if self.high <= limit else False if self.low > limit else None

    def text(self, scale, unit, digits=2):
        middle, low, high = (f"{scale * value:+.{digits}f}" for value in (self.middle, self.low, self.high))
        return f"{middle} {unit} ({low} … {high})"


def pooled(results, key):
    values = [value for result in results for value in result.get(key, [])]
    return Cost(values) if values else None


def in_short(way, results):
    if way == "whole":
        return f"{100 * statistics.median(result['share'] for result in results):+.2f} %"
    cost = pooled(results, "left" if way == "after" else "added")
    return f"{cost.text(100, '%')}, {cost.count} groups" if cost else "–"


def hooks_target(rows):
    """(what, reached, target, met): half a percent in the middle of the workloads, and nowhere above both one percent and ten microseconds."""
    shares, absolute = ({name: pooled(row["hooks"], key) for name, row in rows.items() if "hooks" in row} for key in ("added", "added_us"))
    if not shares:
        return []
    middle = Cost([cost.middle for cost in shares.values()])
    verdicts = {name: either(shares[name].at_most(WORST), absolute[name].at_most(WORST_US)) for name in shares}
    beyond = [name for name, met in verdicts.items() if met is False]
    unclear = [name for name, met in verdicts.items() if met is None]
    reached = ", ".join(beyond) or (f"none; not decided: {', '.join(unclear)}" if unclear else "none")
    return [("hooks, median of the workloads", f"{100 * middle.middle:+.2f} %", "0.5 %", middle.middle <= MEDIAN),
            ("hooks, above both 1 % and 10 µs", reached, "none", False if beyond else None if unclear else True)]


def sampler_target(rows):
    """The process beside the training, which asks for figures."""
    shares, absolute = ({name: pooled(row["sampler"], key) for name, row in rows.items() if "sampler" in row} for key in ("added", "added_us"))
    met = all_of([either(cost.at_most(WORST), absolute[name].at_most(WORST_US)) for name, cost in shares.items()])
    return [("fullwatt's own process beside the training", ", ".join(f"{name} {cost.text(100, '%')}" for name, cost in shares.items()), "1 % or 10 µs", met)] if shares else []


def either(a, b):
    """Or, with None for unknown."""
    if a or b:
        return True
    return None if a is None or b is None else False


def all_of(verdicts):
    """And, with None for unknown."""
    return False if False in verdicts else None if None in verdicts else True


def beyond_bare(rows, ours, what):
    """The steps of a window cost what bare CUPTI costs, which took turns with it, and the hooks, which are in all steps."""
    shares, absolute = ({name: pooled(row[ours], f"{key}_beyond_bare") for name, row in rows.items() if ours in row} for key in ("added", "added_us"))
    shares = {name: cost for name, cost in shares.items() if cost}
    if not shares:
        return []
    met = all_of([either(cost.at_most(WORST), absolute[name].at_most(WORST_US)) for name, cost in shares.items()])
    return [(f"{what}: its steps, beyond bare CUPTI", ", ".join(f"{name} {cost.text(100, '%')}" for name, cost in shares.items()), "1 % or 10 µs, as for hooks", met)]


def share_of(rows, ours, theirs, key, what):
    """A window costs a fifth of what torch.profiler costs."""
    pairs = {name: (pooled(row[ours], key), pooled(row[theirs], key)) for name, row in rows.items() if ours in row and theirs in row}
    telling = {name: pair for name, pair in pairs.items() if None not in pair and pair[1].low > TELLING}
    if not telling:
        return []
    each = [either(cost.at_most(PROFILER_SHARE * profiler.low), False if cost.low > PROFILER_SHARE * profiler.high else None) for cost, profiler in telling.values()]
    return [(what, ", ".join(f"{name} {cost.middle / profiler.middle:.2f}" for name, (cost, profiler) in telling.items()), "0.2", all_of(each))]


def window_targets(rows):
    rivals = {"profiler_both": "torch.profiler's", "profiler_stacks": "torch.profiler's with stacks, which tell lines, too"}
    wanted = [("times", "profiler_both"), ("causes", "profiler_both"), ("causes", "profiler_stacks")]
    parts = {"added": "its steps", "lost": "with opening and closing"}
    return [*(target for ours in ("times", "causes") for target in beyond_bare(rows, ours, f"window of {ours}")),
            *(target for key, part in parts.items() for ours, theirs in wanted for target in share_of(rows, ours, theirs, key, f"window of {ours}: {part}, of {rivals[theirs]}")),
            *(target for key, part in parts.items() for target in share_of(rows, "bare_cupti", "profiler_both", key, f"for comparison, bare CUPTI: {part}, of torch.profiler's"))]


def after_target(rows):
    """A window leaves nothing behind. Trainings whose pace changes by itself do not let anybody say, nor do few of them."""
    costs = {name: [pooled(row["after"], key) for key in ("left", "control", "left_by_bare")] for name, row in rows.items() if "after" in row}
    if not costs:
        return []
    words = ("", "without any ", "after bare CUPTI ")
    told = "; ".join(f"{name} {', '.join(word + cost.text(100, '%') for word, cost in zip(words, each) if cost)}" for name, each in costs.items())
    verdicts = [left.at_most(WORST) if left.count >= LEAST_RELAYS and control.low >= -WORST and control.high <= WORST else None for left, control, _ in costs.values()]
    return [("steps after windows, beside those before them", told, "1 %", all_of(verdicts)), *after_bare_target(rows)]


def after_bare_target(rows):
    """What windows leave behind that bare CUPTI does not, from like trainings that took turns."""
    costs = {name: Cost([left - bare for result in row["after"] for left, bare in zip(result["left"], result.get("left_by_bare", []))])
             for name, row in rows.items() if any("left_by_bare" in result for result in row.get("after", []))}  # fmt: skip
    if not costs:
        return []
    told = ", ".join(f"{name} {cost.text(100, '%')}" for name, cost in costs.items())
    return [("steps after windows, beyond those after bare CUPTI", told, "1 %", all_of([cost.at_most(WORST) if cost.count >= LEAST_RELAYS else None for cost in costs.values()]))]


def whole_target(rows):
    shares = [statistics.median(result["share"] for result in row["whole"]) for row in rows.values() if "whole" in row]
    return [("a whole run, the worst", f"{100 * max(shares):.2f} %", "1 %", max(shares) <= WHOLE)] if shares else []


def whole_words(rows, seconds):
    if not any("whole" in row for row in rows.values()):
        return ""
    return (f" The whole run is one of {seconds:.0f} s: what the steps in and around its windows took beyond the mean of the others, and the hooks of every step, "
            "of its length.")


def steady_line(name, row):
    steps = [value for results in row.values() for result in results for value in result.get("step_us", [])]
    hooks, told = row.get("hooks", []), [result["told_us"] for result in row.get("hooks", []) if result["told_us"]]
    added = pooled(hooks, "added_us") if hooks else None
    parts = [name, f"{statistics.median(steps) / 1e3:.3f}" if steps else "–", added.text(1, "µs", 1) if added else "–", f"{statistics.median(told):.1f}" if told else "–"]
    parts += [in_short(way, row[way]) if way in row else "–" for way in ("hooks", "whole")]
    return f"| {' | '.join(parts)} |"


def window_lines(name, row):
    for way, what in WINDOWS.items():
        if way in row:
            costs = [pooled(row[way], key) for key in ("added", "lost")]
            yield f"| {name} | {what} | {' | '.join(cost.text(100, '%') if cost else '–' for cost in costs)} | {costs[0].count} |"


def table(rows, head, whole_seconds):
    reached = hooks_target(rows) + sampler_target(rows) + window_targets(rows) + after_target(rows) + whole_target(rows)
    lines = ["# What fullwatt costs a training", "", head, "",
             "Made by `bench/overhead.py`. Within one process, something is turned on and off after every few steps; a group of steps with it is held against the two beside it without it. Shown is the "
             "median over all groups with its 95 % interval. \"told\" is what fullwatt itself says that its hooks take." + whole_words(rows, whole_seconds), "",
             "| | reached | target | met |", "|---|---|---|---|", *[f"| {what} | {value} | {target} | {MARKS[met]} |" for what, value, target, met in reached], "",
             "## Steady steps, and a whole run", "", "| workload | step, ms | hooks | told, µs | hooks | whole run |", f"|{'---|' * 6}", *[steady_line(name, row) for name, row in rows.items()], "",
             "## Windows", "",
             "Windows of both kinds and bare CUPTI take turns in one process; each profiler has one of its own. The last column counts all that is lost from opening a window until it is closed again, as a "
             "share of its steps, about 20 as in a run: to attach CUPTI and to take it out again takes about 10 ms, which bare CUPTI pays, too, and a profiler that stays attached does not. What windows "
             "leave behind is measured with like trainings that take turns, while the others stand still: how the pace of the one that had windows halfway, or bare CUPTI, relates to that of one that had "
             "nothing, after that beside before; and so of a second one that had nothing. The interval is that of several such relays.", "",
             "| workload | what records | its steps, beside those between | with opening and closing | groups |", f"|{'---|' * 5}",
             *[text for name, row in rows.items() for text in window_lines(name, row)]]
    return "\n".join(lines) + "\n", any(met is False for _, _, _, met in reached)
