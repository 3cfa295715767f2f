"""Explains runs again that were recorded on an H200 (bench/pack_recording.py), and holds the reports against what is planted.

Usage: recordings_test.py FULLWATT. Needs no GPU and no torch.
"""

import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "bench"))

import truth  # noqa: E402
import verdicts  # noqa: E402

FULLWATT = sys.argv.pop(1)


def is_plain_part(own, told):
    """A program's own figures hold the steps that were recorded, too. Where these are many, plain ones are among its shorter half."""
    return told["count"] < 0.9 * own["count"] and own["p05"] < told["median"] < own["median"]


class RecordingsTest(unittest.TestCase):
    def report(self, recording, folder):
        """What `fullwatt report` says about a recording, and what the program measured itself."""
        with tarfile.open(recording) as archive:
            archive.extractall(folder, filter="data") if hasattr(tarfile, "data_filter") else archive.extractall(folder)
        result = subprocess.run([FULLWATT, "report", folder, "--json"], capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout), json.loads((pathlib.Path(folder) / "own.json").read_text(encoding="utf-8"))

    def judge(self, name, entry, report, own, program):
        row = verdicts.judged(name, entry, own, report, program=program)
        if entry.get("healthy"):
            self.assertEqual(row["alarms"], [])
        else:
            self.assertTrue(row["right_cause"], row["findings"])
            self.assertIsNot(row["right_line"], False, row["place"])
        if report["gpu_busy_ms"] is not None:
            self.assertGreaterEqual(report["explained_idle_share"], 0.95)
        self.assertTrue(row["step_agrees"] is not False or is_plain_part(row["own"]["step_ms"], row["step_ms"]), (row["own"]["step_ms"], row["step_ms"]))
        self.assertIsNot(row["busy_agrees"], False, (row["own"]["busy_ms"], row["busy_ms"]))
        self.assertAlmostEqual(sum(cause["charged_ms"] for cause in report["causes"]), report["step_ms"]["mean"], places=9)

    def test_every_recording_is_explained_as_it_was_planted(self):
        entries = truth.load()
        recordings = sorted(HERE.glob("*.tgz"))
        self.assertGreater(len(recordings), 10)
        for recording in recordings:
            with self.subTest(recording.stem), tempfile.TemporaryDirectory() as folder:
                report, own = self.report(recording, folder)
                program = next(pathlib.Path(folder).glob(f"sources/*-{recording.stem}.py"))
                self.judge(recording.stem, entries[recording.stem], report, own, program)


if __name__ == "__main__":
    unittest.main()
