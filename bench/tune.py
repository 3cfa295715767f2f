"""What `tune` reaches: the examples beside an expert's rewrite, what removing a line was predicted to give, trainings with one cost, trainings that are tuned already,
memory by batch size, and how good predictions are.

Usage: tune.py FULLWATT [--parts lstm keypoint targets costs tuned memory…] [--keypoint DATA] [--costs NAME…] [--tuned NAME…] [--families NAME…] [--cards GB…] [--seeds N]
[--merge [--rates]] [--commit ID]; DATA is made by examples/keypoint/generate.py.
Steady samples/s are those of `fullwatt run`; an expert's program tells its own. All ways of one part take turns.
"""

import argparse
import concurrent.futures
import itertools
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import running
import truth
import tune_table

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
KEYPOINT, LSTM = ROOT / "examples" / "keypoint", ROOT / "examples" / "lstm"
TUNED = ["healthy_resnet", "healthy_transformer", "healthy_compiled", "healthy_data_on_gpu", "healthy_gan"]
FAMILIES = ["cnn", "transformer", "lstm"]
COSTS = {"loader_no_workers": ["sample-cache", "loader-workers"], "loader_few_workers": ["sample-cache", "loader-workers"], "loader_slow_collate": ["sample-cache"],
         "loader_not_persistent": ["sample-cache", "loader-persistent"], "loader_begun_each_step": ["sample-cache"], "loader_disk": ["sample-cache"],
         "loader_batch_one": ["sample-cache"], "anomaly_mode": ["anomaly-off"], "gc_cycles": ["gc-freeze"]}  # fmt: skip
TUNED_SECONDS = 60  # of a program; each start of `tune` ends it earlier
COMPARED_SECONDS, COMPARISONS = 8, 3
LEAST_BATCHES = 98  # of 256 samples
AT_ONCE = 6


def python(arguments):
    return [sys.executable, *map(str, arguments)]


def tune(options, program, plan, seeds, flags=()):
    """The answer of `tune`, and how many seconds it took."""
    started = time.monotonic()
    keeping = ["--keep"] if options.keep else []
    command = [options.fullwatt, "tune", "--anew", "--json", "--seeds", str(seeds), "--output", plan, *keeping, *flags, "--", *python(program)]
    with tempfile.TemporaryDirectory() as home:
        answer = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=program[0].parent, env={**os.environ, "FULLWATT_HOME": options.keep or home})
    return json.loads(answer.stdout), time.monotonic() - started


def report(fullwatt, program, plan=None, steps=None):
    """What `fullwatt run` says of it."""
    with tempfile.TemporaryDirectory() as home:
        flags = [*(["--fix", plan] if plan else []), *(["--steps", str(steps)] if steps else [])]
        subprocess.run([fullwatt, "run", "--quiet", *flags, "--", *python(program)], env={**os.environ, "FULLWATT_HOME": home}, check=True,
                       stdout=subprocess.DEVNULL, cwd=program[0].parent)
        return json.loads(next(pathlib.Path(home).glob("runs/*/report.json")).read_text(encoding="utf-8"))


def own(program):
    """What an expert's program tells."""
    answer = subprocess.run(python(program), stdout=subprocess.PIPE, text=True, check=True, cwd=program[0].parent)
    return float(re.search(r"samples_per_second=([\d.]+)", answer.stdout).group(1))


def beside_expert(options, part, program, expert, plain_steps=None):
    """The tuning, and then the rates beside it: finding and proving a plan takes long, and must not be lost."""
    with tempfile.TemporaryDirectory() as folder:
        plan = str(pathlib.Path(folder) / "plan.yaml")
        earlier = options.stored.get(part)
        if options.rates and earlier:
            tuning, seconds = earlier["tuning"], earlier["seconds"]
            fixes = [{"id": fix["id"], **fix["settings"]} for fix in tuning["plan"]["fixes"]]
            pathlib.Path(plan).write_text(json.dumps({"version": 1, "fixes": fixes}), encoding="utf-8")
        else:
            tuning, seconds = tune(options, program, plan, options.seeds)
        rates = {"plain": [], "plan": [], "expert": []}
        row = {"tuning": tuning, "seconds": seconds, **dict.fromkeys(rates)}
        yield row
        for _ in range(options.repeats):
            rates["plain"].append(report(options.fullwatt, program, steps=plain_steps)["samples_per_second"])
            if tuning["proved"]:
                rates["plan"].append(report(options.fullwatt, program, plan)["samples_per_second"])
            rates["expert"].append(own(expert))
    yield {**row, **{way: statistics.median(values) if values else None for way, values in rates.items()}}


def lstm(options):
    return beside_expert(options, "lstm", [LSTM / "train.py", "--lengths", "60", "--hidden", "64", "--epochs", "12"], [LSTM / "expert.py", "--epochs", "4"])


def keypoint(options):
    if len(list(pathlib.Path(options.keypoint).glob("batch*_images.npy"))) < LEAST_BATCHES:
        raise SystemExit(f"{options.keypoint} has less than 25,000 samples; examples/keypoint/generate.py makes more")
    data = ["--data", options.keypoint]
    return beside_expert(options, "keypoint", [KEYPOINT / "train.py", *data, "--targets", "dataset", "--epochs", "8"], [KEYPOINT / "expert.py", *data], plain_steps=250)


def targets(options):
    """The line that recomputes targets, and how fast the training is without it: as predicted, and as it is."""
    program = [KEYPOINT / "train.py", "--data", options.keypoint, "--epochs", "1"]
    before = report(options.fullwatt, program)
    found = next(finding for finding in before["findings"] if finding["id"] == "targets-recomputed")
    predicted = before["step_ms"]["mean"] - found["gain_ms"]
    after = report(options.fullwatt, [*program, "--targets", "dataset"])
    yield {"file": pathlib.Path(found["file"]).name, "line": found["line"], "charged_ms": found["charged_ms"], "before_ms": before["step_ms"]["mean"],
           "predicted_ms": predicted, "after_ms": after["step_ms"]["mean"]}


def without_all_but(wanted):
    """The words that leave `tune` only these fixes."""
    return [word for page in sorted((ROOT / "docs" / "fixes").glob("*.md")) if page.stem not in ("README", *wanted) for word in ("--skip", page.stem)]


def costs(options):
    """Trainings with one cost that a fix takes away; each fix alone."""
    for name in options.costs:
        for fix in COSTS[name]:
            with tempfile.TemporaryDirectory() as folder:
                flags = ["--no-proof", *without_all_but([fix])]
                tuning, seconds = tune(options, [truth.script(name), "--seconds", str(TUNED_SECONDS)], str(pathlib.Path(folder) / "plan.yaml"), options.seeds, flags)
            row = {"tuning": tuning, "seconds": seconds}
            print(f"{name}, {fix}: {tune_table.in_short(row)}", flush=True)
            yield f"{name}, {fix}", row


def tuned(options):
    """Trainings without a fault: a plan that is found for one must not make it slower, also without a proof."""
    for name in options.tuned:
        program = [truth.script(name), "--seconds", str(TUNED_SECONDS)]
        with tempfile.TemporaryDirectory() as folder:
            plan = str(pathlib.Path(folder) / "plan.yaml")
            tuning, seconds = tune(options, program, plan, options.seeds, ["--no-proof"])
            short = [truth.script(name), "--seconds", str(COMPARED_SECONDS)]
            pairs = []
            if tuning["plan"]["fixes"]:
                report(options.fullwatt, short, plan)  # what is compiled once is there afterwards
            for turn in range(COMPARISONS if tuning["plan"]["fixes"] else 0):
                pair = {fixes: report(options.fullwatt, short, fixes)["step_ms"]["mean"] for fixes in ((None, plan) if turn % 2 == 0 else (plan, None))}
                pairs.append((pair[None], pair[plan]))
        row = {"tuning": tuning, "seconds": seconds, "pairs": pairs}
        print(f"{name}: {tune_table.in_short(row)}", flush=True)
        yield name, row


def memory(options):
    """Nothing but the batch size is changed; each size that was tried, with the memory that smaller ones let expect. All cards that are simulated are searched at once: their
    memory is not each other's."""
    def batches(family, card):
        program = [ROOT / "bench" / "memory_models.py", family, *(["--small"] if options.small else []), *(["--card", str(card)] if card else [])]
        with tempfile.TemporaryDirectory() as folder:
            return tune(options, program, str(pathlib.Path(folder) / "plan.yaml"), options.seeds, ["--no-proof", "--allow", "batch", *without_all_but(["batch-size"])])[0]["batches"]

    with concurrent.futures.ThreadPoolExecutor(AT_ONCE if options.cards else 1) as pool:
        searches = {pool.submit(batches, *pair): pair for pair in itertools.product(options.families, options.cards or [None])}
        for search in concurrent.futures.as_completed(searches):
            family, card = searches[search]
            yield f"{family}, {card} GB" if card else family, search.result()


PARTS = {"lstm": lstm, "keypoint": keypoint, "targets": targets}
PARTS_OF_ROWS = {"costs": costs, "tuned": tuned, "memory": memory}  # those stored row by row


def measured(options, rows):
    """Puts into the rows what each part finds, and stops after each finding, so that it can be stored."""
    for part in options.parts:
        if part in PARTS:
            for row in PARTS[part](options):
                rows[part] = row
                yield
        else:
            for name, row in PARTS_OF_ROWS[part](options):
                rows.setdefault(part, {})[name] = row
                yield


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("fullwatt", type=lambda text: str(pathlib.Path(text).resolve()))
    parser.add_argument("--parts", nargs="*", default=[*PARTS, *PARTS_OF_ROWS], choices=[*PARTS, *PARTS_OF_ROWS])
    parser.add_argument("--keypoint", type=lambda text: str(pathlib.Path(text).resolve()), default="data", help="folder with the keypoint data")
    parser.add_argument("--costs", nargs="*", default=[*COSTS], choices=[*COSTS], help="workloads with one cost")
    parser.add_argument("--tuned", nargs="*", default=TUNED, help="workloads that are tuned already")
    parser.add_argument("--small", action="store_true", help="models of a size for CPUs, where memory is measured")
    parser.add_argument("--families", nargs="*", default=FAMILIES, choices=FAMILIES, help="of models, where memory is measured")
    parser.add_argument("--cards", nargs="*", type=int, default=[], help="memory in GB of cards that are simulated, where memory is measured; without it that of the GPU")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--keep", type=lambda text: str(pathlib.Path(text).resolve()), help="folder in which all starts of `tune` stay")
    parser.add_argument("--merge", action="store_true", help="keep what earlier calls have measured")
    parser.add_argument("--rates", action="store_true", help="with --merge: measure the examples again, with the plans that were found for them")
    parser.add_argument("--commit", default="")
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS)
    options = parser.parse_args()
    running.end_on_sigterm()
    options.output.mkdir(parents=True, exist_ok=True)
    stored = options.output / "tune.json"
    rows = options.stored = json.loads(stored.read_text(encoding="utf-8")) if options.merge and stored.exists() else {}
    head, missed = running.machine(options.commit, options.fullwatt), False
    for _ in measured(options, rows):
        stored.write_text(json.dumps(rows, indent=1).replace(f"{ROOT}/", ""), encoding="utf-8")  # no paths of this machine
        text, missed = tune_table.table(rows, head)
        (options.output / "tune.md").write_text(text, encoding="utf-8")
        print(text, flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
