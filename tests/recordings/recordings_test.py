"""Explains runs again that were recorded on an H200 (bench/pack_recording.py), and holds the reports against what is planted.

Usage: recordings_test.py FULLWATT. Needs no GPU and no torch.
"""

import json
import pathlib
import statistics
import subprocess
import sys
import tarfile
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "agent"), str(HERE.parent.parent / "bench")]

import truth  # noqa: E402
import verdicts  # noqa: E402
from spool import spools  # noqa: E402

OWN_WARM_UP = 10  # steps that the workloads leave out
FULLWATT = sys.argv.pop(1)


class RecordingsTest(unittest.TestCase):
    def report(self, recording, folder):
        """What `fullwatt report` says about a recording, and what the program measured itself."""
        with tarfile.open(recording) as archive:
            archive.extractall(folder, filter="data") if hasattr(tarfile, "data_filter") else archive.extractall(folder)
        result = subprocess.run([FULLWATT, "report", folder, "--json"], capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout), json.loads((pathlib.Path(folder) / "own.json").read_text(encoding="utf-8"))

    def plain(self, folder, own):
        """The median of the plain steps. The program's own holds those of windows, too: of all steps it must be that of the spool."""
        steps = next(spool for spool in spools(folder) if spool.header.role == 0).steps()
        lengths = [((step.end_ns - before.end_ns) / 1e6, step.flags) for before, step in zip(steps, steps[1:])][OWN_WARM_UP:]
        if own["count"] != len(lengths):  # other steps than the program counts
            return {}
        self.assertAlmostEqual(statistics.median(ms for ms, _ in lengths) / own["median"], 1, delta=verdicts.STEP_TOLERANCE)
        return {"median": statistics.median(ms for ms, flags in lengths if flags == 0)}

    def judge(self, name, entry, report, own, program):
        row = verdicts.judged(name, entry, own, report, program=program)
        if entry.get("healthy"):
            self.assertEqual(row["alarms"], [])
        else:
            self.assertTrue(row["right_cause"], row["findings"])
            self.assertIsNot(row["right_line"], False, row["place"])
        if report["gpu_busy_ms"] is not None:
            self.assertGreaterEqual(report["explained_idle_share"], 0.95)
        self.assertIsNot(row["step_agrees"], False, (row["own"]["step_ms"], row["step_ms"]))
        self.assertIsNot(row["busy_agrees"], False, (row["own"]["busy_ms"], row["busy_ms"]))
        self.assertAlmostEqual(sum(cause["charged_ms"] for cause in report["causes"]), report["step_ms"]["mean"], places=9)

    def test_every_recording_is_explained_as_it_was_planted(self):
        entries = truth.load()
        recordings = sorted(HERE.glob("*.tgz"))
        self.assertGreater(len(recordings), 10)
        for recording in recordings:
            with self.subTest(recording.stem), tempfile.TemporaryDirectory() as folder:
                report, own = self.report(recording, folder)
                own["step_ms"].update(self.plain(folder, own["step_ms"]))
                program = next(pathlib.Path(folder).glob(f"sources/*-{recording.stem}.py"))
                self.judge(recording.stem, entries[recording.stem], report, own, program)

    def test_a_cost_is_predicted_as_it_was_measured_when_its_fix_was_tried(self):
        """On another day, so as a share of the step."""
        tried = json.loads((HERE.parent.parent / "bench" / "results" / "tune.json").read_text(encoding="utf-8"))["costs"]
        for name, finding, fix in (("anomaly_mode", "anomaly-detection-on", "anomaly-off"),):
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                report, _ = self.report(HERE / f"{name}.tgz", folder)
                (gain,) = [found["gain_ms"] for found in report["findings"] if found["id"] == finding]
                (outcome,) = tried[f"{name}, {fix}"]["tuning"]["tried"]
                self.assertAlmostEqual(gain / report["step_ms"]["mean"], 1 - outcome["after_ms"] / outcome["before_ms"], delta=0.1)


if __name__ == "__main__":
    unittest.main()
