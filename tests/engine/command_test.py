"""`fullwatt train` before the engine starts: which GPU it takes, on machines that the fakes of the driver's libraries show, and what it says where the engine is missing or broken."""

import copy
import json
import os
import pty
import re
import shutil
import subprocess
import unittest
import unittest.mock

from group_test import GroupCase
from support import PROGRAM, ROOT, EngineCase

FULLWATT = os.environ["FULLWATT_PROGRAM"]
FAKES = os.environ.get("FULLWATT_FAKES", "")
# Tells what it was started with, as the engine would be.
STAND_IN = """#!/bin/sh
[ "$1" = --version ] && exit 0
echo "arguments: $*"
echo "visible: ${CUDA_VISIBLE_DEVICES-none}"
"""
# From the smaller to the larger, in the order of the bus.
CARDS = (("NVIDIA GeForce GTX 1650", "GPU-16500000-1111-2222-3333-444455556666", "0000:01:00.0", "7.5", 896, 4),
         ("NVIDIA GeForce RTX 4090", "GPU-40900000-1111-2222-3333-444455556666", "0000:02:00.0", "8.9", 16384, 24))


class CommandCase(EngineCase):
    def setUp(self):
        super().setUp()
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        shutil.copy(FULLWATT, self.bin / "fullwatt")  # a link would lead back to the engine beside the real one

    def put_engine(self, text, mode=0o755):
        path = self.bin / "fullwatt-train"
        path.write_text(text)
        path.chmod(mode)

    def command(self, *arguments, code=0, **environment):
        plain = {name: value for name, value in os.environ.items() if name not in ("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH")}
        answer = subprocess.run([self.bin / "fullwatt", "train", *map(str, arguments)], capture_output=True, text=True, timeout=120, env={**plain, **environment})
        self.assertEqual(answer.returncode, code, answer.stderr)
        return answer.stdout + answer.stderr


@unittest.skipUnless(FAKES, "FULLWATT_FAKES is not set")
class GpuChoiceTest(CommandCase):
    def setUp(self):
        super().setUp()
        self.put_engine(STAND_IN)

    def machine(self, cards, visible=None):
        """The environment in which NVML shows these cards, each made from the answers of a saved machine's, and CUDA those that are visible."""
        told = json.loads(subprocess.run([FULLWATT, "doctor", "--json", "--from", ROOT / "tests" / "patients" / "laptop-rtx4050-intel"], capture_output=True, text=True).stdout)["machine"]
        answers = (("NVML", told["nvml"], cards), ("CUDA", told["cuda"]["answers"], cards if visible is None else visible))
        environment = {"LD_LIBRARY_PATH": FAKES}
        for library, answer, shown in answers:
            like = answer["devices"][0]
            answer["devices"] = []
            for index, (name, uuid, bdf, capability, cores, gigabytes) in enumerate(shown):
                card = {**copy.deepcopy(like), "name": name, "uuid": uuid, "bdf": bdf, "compute_capability": capability, "memory_total_bytes": gigabytes * 10**9}
                card.update({"index": index, "cores": cores, "memory_free_bytes": gigabytes * 10**9 - 10**8} if library == "NVML" else {"ordinal": index})
                answer["devices"].append(card)
            path = self.folder / f"{library}.json"
            path.write_text(json.dumps(answer))
            environment[f"FULLWATT_FAKE_{library}"] = str(path)
        return environment

    def test_of_several_gpus_the_most_capable_is_taken(self):
        for cards in (CARDS, CARDS[::-1]):
            told = self.command("x.yaml", "--anew", **self.machine(cards))
            self.assertIn("arguments: x.yaml --anew --gpu GPU-40900000-1111-2222-3333-444455556666\n", told)
            self.assertIn("where the training wants a GPU, it gets NVIDIA GeForce RTX 4090: NVIDIA GeForce RTX 4090 is discrete, free and the most capable of 2 usable GPUs.", told)

    def test_what_the_user_hid_stays_hidden(self):
        smaller, larger = CARDS[0][1], CARDS[1][1]
        told = self.command("x.yaml", **self.machine(CARDS), CUDA_VISIBLE_DEVICES=smaller)
        self.assertIn("arguments: x.yaml\n", told)
        self.assertIn(f"visible: {smaller}\n", told)
        third = ("NVIDIA GeForce RTX 5090", "GPU-50900000-1111-2222-3333-444455556666", "0000:03:00.0", "12.0", 21760, 32)
        self.assertIn(f"arguments: x.yaml --gpu {larger}\n", self.command("x.yaml", **self.machine((*CARDS, third), CARDS), CUDA_VISIBLE_DEVICES=f"{smaller},{larger}"))

    def test_one_gpu_or_none_leaves_nothing_to_choose(self):
        for cards in (CARDS[:1], ()):
            self.assertEqual(self.command("x.yaml", **self.machine(cards)), "arguments: x.yaml\nvisible: none\n")

    def test_gpu_config_takes_the_card_and_its_values(self):
        told = self.command("--gpu-config", "x.yaml", **self.machine(CARDS))
        self.assertIn("fullwatt: trains on NVIDIA GeForce RTX 4090: ", told)
        self.assertRegex(told, r"arguments: x.yaml --set hardware.device=cuda --gpu GPU-40900000-1111-2222-3333-444455556666( --start \S+=\S+)+\n")
        begins = re.search(r"begins with (.*) where the configuration says nothing", told).group(1).split(", ")
        self.assertEqual(re.findall(r"--start (\S+)", told), begins)
        self.assertIn("train.amp=auto", begins)
        older = self.command("--gpu-config", "x.yaml", **self.machine(CARDS[:1]))
        self.assertIn("--start train.amp=fp16", older)

    def test_gpu_config_without_a_gpu_trains_nothing(self):
        told = self.command("--gpu-config", "x.yaml", code=3, **self.machine(()))
        self.assertIn("--gpu-config: no GPU can be trained on: ", told)
        self.assertIn("fullwatt doctor", told)
        self.assertNotIn("arguments:", told)


class MissingEngineTest(CommandCase):
    def test_without_an_engine_the_command_says_how_to_build_it(self):
        told = self.command("x.yaml", code=3)
        self.assertIn(f"{self.bin}/fullwatt-train is not there: this fullwatt was built without PyTorch", told)
        self.assertIn("Build it for the PyTorch that is installed: ./dev build release", told)

    def test_an_engine_without_its_libraries_is_named_with_what_is_missing(self):
        shutil.copy(PROGRAM, self.bin / "fullwatt-train")
        path = self.bin / "fullwatt-train"
        raw = path.read_bytes()
        self.assertIn(b"libtorch_cpu.so\0", raw)
        path.write_bytes(raw.replace(b"libtorch_cpu.so\0", b"libtorch_xyz.so\0"))
        told = self.command("x.yaml", code=3)
        self.assertIn("fullwatt-train does not start: ", told)
        self.assertIn("libtorch_xyz.so: cannot open shared object file", told)
        self.assertIn("Build it for the PyTorch that is installed", told)

    def test_an_engine_that_cannot_be_executed(self):
        self.put_engine("no program at all", mode=0o644)
        self.assertIn("fullwatt-train", self.command("x.yaml", code=3))

    def test_an_engine_that_fails_at_once(self):
        self.put_engine("#!/bin/sh\necho the GPU is on fire >&2\nexit 1\n")
        self.assertIn("fullwatt-train does not start: the GPU is on fire", self.command("x.yaml", code=3))


class ChosenGpuTest(GroupCase):
    """What the engine does with the choice."""

    def test_a_training_that_may_have_a_gpu_sees_no_other(self):
        self.write_windows(16)
        self.assertIn("the only GPU that the training sees is GPU-1\n", self.train(self.configure(hardware_device="auto"), "--gpu", "GPU-1"))

    def test_a_training_on_the_cpu_and_several_processes_do_not_take_it(self):
        self.write_windows(32)
        self.assertNotIn("the only GPU", self.train(self.configure(), "--gpu", "GPU-1"))
        with unittest.mock.patch.dict(os.environ, CUDA_VISIBLE_DEVICES=""):  # the two would not share a real one
            told = self.end_all(self.start_all(self.configure(hardware_device="auto"), "--gpu", "GPU-1", "--anew"), 0)
        self.assertNotIn("the only GPU", "".join(told))


class ProgressTest(EngineCase):
    def test_on_a_terminal_one_line_shows_how_far_it_is(self):
        self.write_windows(32)
        config = self.configure(train_epochs=5)
        main, terminal = pty.openpty()
        process = subprocess.Popen([PROGRAM, config], stdout=terminal, stderr=terminal, env={**os.environ, "OMP_NUM_THREADS": "1"})
        os.close(terminal)
        shown = b""
        while True:
            try:
                part = os.read(main, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            shown += part
        os.close(main)
        self.assertEqual(process.wait(timeout=60), 0)
        lines = re.findall(r"\r\[([#.]{20})\] +(\d+) %, (\d+:\d\d) left  epoch (\d+) step (\d+): loss \S+, \d+ samples/s\x1b\[K", shown.decode())
        self.assertEqual([int(step) for *_, step in lines], list(range(1, 21)))
        self.assertEqual([int(percent) for _, percent, *_ in lines], [5 * step for step in range(1, 21)])
        self.assertEqual([bar.count("#") for bar, *_ in lines], list(range(1, 21)))
        self.assertEqual(lines[-1][2], "0:00")
        self.assertNotIn("saved ", shown.decode(), "it would break the line")

    def test_into_a_file_it_is_a_line_for_each(self):
        self.write_windows(16)
        told = self.train(self.configure())
        self.assertNotIn("\x1b", told)
        self.assertNotIn("[#", told)
        self.assertEqual(len(re.findall(r"^epoch \d+ step \d+: loss ", told, re.M)), 2)


if __name__ == "__main__":
    unittest.main()
