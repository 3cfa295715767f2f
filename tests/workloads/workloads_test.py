"""The truth about the workloads is whole, and the bench judges by it. Run with: python -m unittest tests/workloads/workloads_test.py"""

import pathlib
import re
import struct
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))

import running
import spool
import truth
import verdicts

OWN = {"device": "cuda", "steps": 100, "step_ms": {"median": 10.0, "mean": 10.5}, "samples_per_second": 100.0, "data_ms": 4.0, "planted_ms": None, "busy_ms": 5.0}


def report(*findings, step_ms=10.0):
    """A report as `fullwatt run` writes it; a finding is (id, file, line)."""
    listed = [{"id": id, "file": file, "line": line, "severity": "warning", "charged_ms": 4.0, "gain_ms": 3.0} for id, file, line in findings]
    return {"verdict": listed[0]["id"] if listed else None, "findings": listed, "step_ms": {"median": step_ms, "mean": step_ms}, "samples_per_second": 100.0,
            "gpu_busy_ms": 5.1, "kernels": [{"count": 100}, {"count": 500}], "explained_idle_share": 0.98, "unexplained_ms": 0.1, "overhead_share": 0.001}


class Truth(unittest.TestCase):
    def setUp(self):
        self.entries = truth.load()

    def test_names_every_program_of_the_folder_and_no_other(self):
        programs = {path.stem for path in truth.WORKLOADS.glob("*.py")} - {"common", "workloads_test"}
        self.assertEqual(programs, set(self.entries))

    def test_has_enough_planted_and_healthy_ones(self):
        healthy = [name for name, entry in self.entries.items() if entry.get("healthy")]
        self.assertGreaterEqual(len(healthy), 8)
        self.assertGreaterEqual(len(self.entries) - len(healthy), 30)

    def test_planted_ones_mark_their_line_and_healthy_ones_do_not(self):
        for name, entry in self.entries.items():
            self.assertEqual(bool(truth.planted_lines(name)), not entry.get("healthy", False), name)

    def test_only_findings_of_the_catalogue_are_expected(self):
        known = set()
        for path in (ROOT / "catalog" / "findings").glob("*.yaml"):
            known |= set(re.findall(r"^  ([a-z0-9-]+):$", path.read_text(encoding="utf-8"), re.MULTILINE))
        for name, entry in self.entries.items():
            self.assertLessEqual(set(entry.get("cause", []) + entry.get("extra", [])), known, name)

    def test_what_takes_the_cause_away_stands_in_the_program(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, entry in self.entries.items():
                if "fixed" in entry:
                    copy = truth.without_cause(name, entry, folder)
                    compile(copy.read_text(encoding="utf-8"), str(copy), "exec")
                    self.assertNotEqual(copy.read_text(encoding="utf-8"), truth.script(name).read_text(encoding="utf-8"))

    def test_programs_are_as_short_as_users_read_them(self):
        for name in self.entries:
            self.assertIn(len(truth.script(name).read_text(encoding="utf-8").splitlines()), range(20, 81), name)


class Reading(unittest.TestCase):
    def test_quoted_texts_keep_colons_commas_and_backslashes(self):
        text = "a:\n  b: {'x: y, z': 'w(\"\\n\")', 'it''s': true}\n  c: [d-e, f]\n"
        self.assertEqual(truth.read_yaml(text), {"a": {"b": {"x: y, z": 'w("\\n")', "it's": True}, "c": ["d-e", "f"]}})

    def test_windows_are_found_behind_texts(self):
        header = struct.pack("<8sIIIi7Q", b"FWSPOOL\n", 1, 0, 7, -1, 0, 0, 0, 2, 3, 9, 0).ljust(4096, b"\0")
        text = struct.pack("<BBHIQQQQII", 1, 0, 0, 1, 0, 0, 60, 0, 0, 0) + b"\x04" * 96
        window = struct.pack("<BBHIQQQQII", 4, 2, 0, 0, 1000, 500, 20, 0, 0, 0)
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "spool-7.fw").write_bytes(header + bytes(2 * 128 + 3 * 96) + text + window)
            self.assertEqual(spool.windows(pathlib.Path(folder)), [("causes", 1000, 1500)])


class Measuring(unittest.TestCase):
    """Steps of 10 ms; those of a window take 30."""

    MS = 1_000_000

    def own(self, before, inside, after):
        ends = [0]
        for length in [10] * before + [30] * inside + [10] * after:
            ends.append(ends[-1] + length * self.MS)
        window = ("causes", ends[before] - 1000, ends[before + inside])  # it opens at the end of a step, a moment before the program notes it
        seconds = (ends[-1] - ends[10]) / 1e9
        own = {"ends_ns": ends, "drained_step": 10, "seconds": seconds, "samples_per_second": 4 * (len(ends) - 11) / seconds, "step_ms": {"median": 10.0, "mean": 12.0, "count": len(ends) - 11}}
        return own, [window]

    def test_steps_of_windows_do_not_count(self):
        own = running.outside_windows(*self.own(60, 20, 60))
        self.assertAlmostEqual(own["step_ms"]["mean"], 10.0, places=3)
        self.assertAlmostEqual(own["samples_per_second"], 400.0, places=1)

    def test_too_few_others_give_no_figure(self):
        own = running.outside_windows(*self.own(12, 40, 4))
        self.assertIsNone(own["samples_per_second"])

    def test_what_came_before_the_first_window_counts_from_where_the_gpu_was_idle(self):
        own, windows = self.own(60, 20, 2)
        self.assertAlmostEqual(running.mean_between(own["ends_ns"], own["ends_ns"][-1], windows, 10), 10.0, places=3)
        self.assertIsNone(running.mean_between(own["ends_ns"], own["ends_ns"][-1], windows))


class Judging(unittest.TestCase):
    def setUp(self):
        self.name = "sync_item"
        self.entry = truth.load()[self.name]
        self.line = truth.planted_lines(self.name)[0]

    def judged(self, *findings, **options):
        return verdicts.judged(self.name, self.entry, OWN, report(*findings, **options))

    def test_the_planted_cause_at_its_line_is_right(self):
        row = self.judged(("sync-each-step", "/x/sync_item.py", self.line))
        self.assertEqual((row["right_cause"], row["right_line"], row["known_ms"]), (True, True, 5.5))

    def test_another_line_is_wrong(self):
        self.assertFalse(self.judged(("sync-each-step", "/x/sync_item.py", self.line + 1))["right_line"])

    def test_the_cause_behind_another_one_is_wrong(self):
        row = self.judged(("launch-bound", "", 0), ("sync-each-step", "/x/sync_item.py", self.line))
        self.assertEqual((row["right_cause"], row["right_line"], row["beside"]), (False, True, ["launch-bound"]))

    def test_gaps_between_kernels_are_busy_time_for_events_only(self):
        for own, is_right in ((5.1, True), (5.8, True), (5.9, False), (4.5, False), (None, None)):
            self.assertIs(verdicts.busy_agree(own, report()), is_right, own)

    def test_a_busy_machine_is_set_aside(self):
        row = self.judged(("cpu-contention", "", 0), ("sync-each-step", "/x/sync_item.py", self.line))
        self.assertEqual((row["right_cause"], row["aside"]), (True, ["cpu-contention"]))

    def test_no_finding_at_all_is_wrong(self):
        self.assertFalse(self.judged()["right_cause"])

    def test_figures_that_differ_do_not_agree(self):
        row = self.judged(step_ms=12.0)
        self.assertEqual((row["step_agrees"], row["samples_agree"], row["busy_agrees"]), (False, True, True))

    def test_the_mean_is_enough_where_the_median_jumps(self):
        self.assertTrue(verdicts.steps_agree({"median": 32.4, "mean": 29.7}, {"median": 43.2, "mean": 29.7}))

    def test_any_finding_on_a_healthy_program_is_an_alarm(self):
        row = verdicts.judged("healthy_gan", {"healthy": True}, OWN, report(("launch-bound", "", 0)))
        self.assertEqual(row["alarms"], ["launch-bound"])


if __name__ == "__main__":
    unittest.main()
