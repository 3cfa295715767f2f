"""The examples as their first lines say, with few samples, on the CPU."""

import os
import subprocess
import sys
import unittest

from support import ROOT, EngineCase


class ExamplesTest(EngineCase):
    def train_example(self, name, generate, *arguments):
        """What it says."""
        subprocess.run([sys.executable, ROOT / "examples" / generate[0], *generate[1:]], cwd=self.folder, check=True, capture_output=True)
        command = [os.environ["FULLWATT_PROGRAM"], "train", ROOT / "examples" / f"{name}.yaml", "--set", "hardware.device=cpu", *arguments]
        answer = subprocess.run(command, cwd=self.folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=300)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        return answer.stderr

    def checkpoints(self, name):
        return sorted(path.name for path in (self.folder / f"{name}-checkpoints").glob("step-*"))

    def test_the_keypoint_network(self):
        told = self.train_example("keypoint", ["keypoint/generate.py", "--output", "keypoint-data", "--count", "4", "--batch", "2"],
                                  "--set", "train.batch_size=2", "--set", "train.epochs=1")
        self.assertIn("3428598 parameters, 4 samples, 2 steps an epoch", told)
        self.assertEqual(self.checkpoints("keypoint"), ["step-000000000002.safetensors"])

    def test_the_forecaster(self):
        told = self.train_example("lstm", ["lstm/windows.py", "--count", "256"])
        self.assertIn("54028 parameters, 256 samples, 2 steps an epoch", told)
        self.assertEqual(self.checkpoints("lstm"), [f"step-{step:012}.safetensors" for step in (2, 4, 6)])


if __name__ == "__main__":
    unittest.main()
