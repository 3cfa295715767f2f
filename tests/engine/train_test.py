"""fullwatt-train as a user runs it: what it writes, how it goes on, and what it says to what is wrong."""

import fcntl
import json
import os
import pathlib
import random
import signal
import struct
import subprocess
import time
import unittest

import numpy as np
from support import EngineCase, read_safetensors


def protobuf(raw):
    """The fields of a message by their numbers: whole numbers, or bytes."""
    fields, at = {}, 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = raw[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(raw):
        key = varint()
        if key & 7 == 0:
            fields[key >> 3] = varint()
            continue
        length = {1: 8, 5: 4}.get(key & 7) or varint()
        fields[key >> 3] = raw[at:at + length]
        at += length
    return fields


def events_of(raw):
    while raw:
        (length,) = struct.unpack("<Q", raw[:8])
        yield protobuf(raw[12:12 + length])
        raw = raw[16 + length:]


class TrainTest(EngineCase):
    def test_a_training_that_was_interrupted_goes_on_to_the_same_weights(self):
        self.write_windows(64)
        model = "{name: lstm, hidden: 16, dropout: 0.3}"
        settings = {"train_epochs": 4, "data_shuffle": "true"}
        self.train(self.configure(model, **settings))
        whole, losses = read_safetensors(self.newest())[0], self.losses()
        self.assertIn("checkpoints of an earlier training are in", self.train(self.configure(model, **{**settings, "train_epochs": 2}), "--anew"))
        self.assertEqual([path.name[-14:-12] for path in sorted((self.folder / "out" / "earlier").iterdir())], ["16", "24", "32"])
        told = self.train(self.configure(model, **settings))
        self.assertIn("goes on from", told)
        again, _ = read_safetensors(self.newest())
        for name, tensor in whole.items():
            self.assertTrue(np.array_equal(tensor.numpy(), again[name].numpy()), name)
        self.assertEqual(self.losses(), losses)

    def test_one_that_was_stopped_within_an_epoch_has_the_same_losses(self):
        self.write_windows(800)
        config = self.configure("{name: lstm, hidden: 16, dropout: 0.3}", train_batch_size=2, data_shuffle="true")
        self.train(config)
        whole, losses = read_safetensors(self.newest())[0], self.losses()
        process = self.start(config, "--anew")
        self.addCleanup(process.kill)
        fcntl.fcntl(process.stderr, fcntl.F_SETPIPE_SZ, 4096)  # so that it waits for its reader long before the 400 lines of the epoch are written
        while "step 9:" not in process.stderr.readline():
            self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        batch = int(read_safetensors(self.newest())[1]["batch"])
        self.assertTrue(9 <= batch < 400, batch)
        self.assertIn("goes on from", self.train(config))
        self.assertEqual(self.losses(), losses)
        for name, tensor in read_safetensors(self.newest())[0].items():
            self.assertTrue(np.array_equal(tensor.numpy(), whole[name].numpy()), name)

    def test_a_training_that_is_done_stays_as_it_is(self):
        self.write_windows(16)
        config = self.configure()
        self.assertIn("verified after the first step: 10 parameters and 0 buffers (0 MB) and the batches are on cpu", self.train(config))
        written = self.newest().stat().st_mtime_ns
        self.assertIn("0 steps in", self.train(config))
        self.assertEqual(self.newest().stat().st_mtime_ns, written)

    def test_the_gpu_is_really_turned_on_or_nothing_is_trained(self):
        self.write_windows(16)
        answer = subprocess.run([os.environ["FULLWATT_PROGRAM"], "train", "--gpu-config", str(self.configure())], capture_output=True, text=True)
        if answer.returncode == 0:
            self.assertRegex(answer.stderr, "fullwatt: trains on .*(?s:.)*the batches are on cuda:0, ")
        else:
            self.assertEqual(answer.returncode, 3)
            self.assertIn("--gpu-config: no GPU can be trained on: ", answer.stderr)
            self.assertFalse((self.folder / "out").exists())

    def test_a_grid_trains_every_combination_and_tells_the_best(self):
        self.write_windows(64)
        path = self.configure(train_epochs=2)
        path.write_text(path.read_text() + "grid: {model.hidden: [4, 16], optimizer.lr: [0.0, 0.05]}\n")
        told = self.train(path)
        rows = [line.split() for line in told.splitlines() if line[:1].isdigit() and "model.hidden=" in line]
        self.assertEqual(len(rows), 4, told)
        self.assertEqual(sorted(rows, key=lambda row: float(row[0])), rows)
        self.assertTrue(rows[0][1].endswith("optimizer.lr=0.05"), rows)
        self.assertEqual(len(list((self.folder / "out").glob("model.hidden=*/step-*.safetensors"))), 8)
        again = self.train(path)
        self.assertEqual(sum(line.startswith("0 steps in") for line in again.splitlines()), 4, "what is done is not done again")

    def test_a_combination_that_fails_does_not_end_a_grid(self):
        self.write_windows(64)
        path = self.configure(train_epochs=20)
        path.write_text(path.read_text() + "grid: {optimizer.lr: [1000, 0.05]}\n")
        told = self.train(path)
        self.assertIn("no number any more", told)
        self.assertRegex(told, r"\n[0-9.e-]+ +optimizer.lr=0.05\nfailed +optimizer.lr=1000\n")

    def test_a_grid_with_an_impossible_combination_trains_nothing(self):
        self.write_windows(64)
        path = self.configure()
        path.write_text(path.read_text() + "grid: {optimizer.lr: [0.05, -1]}\n")
        self.assertIn("optimizer.lr=-1", self.train(path, code=2))
        self.assertFalse((self.folder / "out").exists())

    def test_what_is_not_in_force_as_configured_is_marked(self):
        self.write_windows(16)
        told = self.train(self.configure(train_pin_memory="true", train_compile_model="true", hardware_deterministic="true"))
        marked = {line.split()[1]: line.split(maxsplit=3)[3] for line in told.splitlines() if line.startswith("* ")}
        self.assertEqual(marked["train.pin_memory"], "false (there is no GPU to copy to)")
        self.assertEqual(marked["hardware.cudnn_benchmark"], "false (hardware.deterministic is true)")
        self.assertEqual(marked["train.compile_model"], "false (LibTorch has no compiler, and only a GPU has graphs)")
        self.assertNotIn("train.epochs", marked)
        self.assertEqual(len(list((self.folder / "out").glob("events.out.tfevents.*"))), 1)

    def newest_step(self):
        """By their names: the oldest may be removed while they are looked at."""
        return max((int(path.stem[5:]) for path in (self.folder / "out").glob("step-*.safetensors")), default=0)

    def test_killed_at_any_moment_it_leaves_checkpoints_that_can_be_read(self):
        self.write_windows(8)  # each step is an epoch and makes a checkpoint
        config = self.configure("{name: lstm, hidden: 64}", train_epochs=10**6)
        waits = random.Random(0)
        for _ in range(20):
            before = self.newest_step()
            process = self.start(config)
            self.addCleanup(process.kill)
            deadline = time.monotonic() + 60
            while self.newest_step() <= before:
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.001)
            time.sleep(waits.uniform(0, 0.05))
            process.kill()
            _, told = process.communicate()
            if before > 0:
                self.assertIn(f"goes on from {self.folder}/out/step-{before:012}.safetensors", told)
            for path in (self.folder / "out").glob("step-*.safetensors"):
                tensors, metadata = read_safetensors(path)
                self.assertEqual(int(metadata["step"]), int(path.stem[5:]))
                self.assertIn("head.weight", tensors)
        newest = self.newest()
        last = self.newest_step() + 2
        self.assertIn(f"goes on from {newest}", self.train(config, "--set", f"train.epochs={last}"))
        self.assertEqual(self.newest_step(), last)

    def test_ctrl_c_ends_in_order_with_a_checkpoint(self):
        self.write_windows(32)
        process = self.start(self.configure(train_epochs=100000, train_log_every=1000, output_every_epochs=100000))
        self.addCleanup(process.kill)
        while "parameters" not in process.stderr.readline():
            pass
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)  # as launchers do, which pass on what the terminal sent already
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, err)
        self.assertIn("the same command goes on", err)
        self.assertTrue(self.newest().exists())

    def test_a_signal_in_the_midst_of_a_kernel_harms_no_memory(self):
        """oneDNN's kernels have the stack pointer in the heap now and then."""
        self.write_windows(1024, length=60)
        config = self.configure("{name: lstm, hidden: 64}", train_batch_size=512, train_epochs=100000, output_every_epochs=100000)
        for _ in range(3):
            process = self.start(config, "--anew")
            self.addCleanup(process.kill)
            while "step 2:" not in process.stderr.readline():
                self.assertIsNone(process.poll())
            for _ in range(200):
                process.send_signal(signal.SIGINT)
                time.sleep(0.001)  # all of them are the same Ctrl-C
            _, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 130, err)

    def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(self):
        self.write_windows(32)
        self.train(self.configure(train_epochs=3))
        raw = bytearray(self.newest().read_bytes())
        raw[-5] ^= 1
        self.newest().write_bytes(raw)
        told = self.train(self.configure(train_epochs=3))
        self.assertIn("step-000000000008.safetensors", told)
        for path in (self.folder / "out").glob("step-*"):
            path.write_bytes(path.read_bytes()[:-3])
        self.assertIn("cut off", self.train(self.configure(train_epochs=3), code=3))

    def test_what_is_wrong_is_said(self):
        self.write_windows(32)
        self.assertIn("did you mean 'lstm'?", self.train(self.configure("{name: lsmt}"), code=3))
        self.assertIn("there is no 'batchsize' in 'train'; did you mean 'batch_size'?", self.train(self.configure(), "--set", "train.batchsize=3", code=2))
        self.assertIn("Its fields are: windows, targets", self.train(self.configure(data_fields="{windos: 'w.npy'}"), code=3))
        self.assertIn("cannot be read", self.train(self.folder / "none.yaml", code=2))
        self.assertIn("fewer than train.batch_size: 64", self.train(self.configure(), "--set", "train.batch_size=64", code=3))
        self.assertIn("no number any more", self.train(self.configure(), "--set", "optimizer.lr=1000", "--set", "train.epochs=50", code=3))
        (self.folder / "targets.npy").write_bytes((self.folder / "targets.npy").read_bytes()[:-8])
        self.assertIn("it is cut off", self.train(self.configure(), code=3))
        (self.folder / "targets.npy").unlink()
        self.assertIn("no file in", self.train(self.configure(), code=3))

    def test_a_file_that_becomes_shorter_ends_the_training_with_its_name_and_a_checkpoint(self):
        self.write_windows(64, length=100)  # rows so long that they are not kept in memory
        process = self.start(self.configure(train_epochs=100000, train_log_every=1000))
        self.addCleanup(process.kill)
        deadline = time.monotonic() + 60
        while not list((self.folder / "out").glob("step-*.safetensors")) and time.monotonic() < deadline:
            time.sleep(0.01)
        os.truncate(self.folder / "windows.npy", 100_000)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 3, err)
        self.assertIn("windows.npy: it became shorter while it was in use: 100000 bytes are left", err)
        self.assertIn("go on from the last checkpoint", err)
        self.assertIn("head.weight", read_safetensors(self.newest())[0])

    @unittest.skipIf(os.geteuid() == 0, "root writes everywhere")
    def test_a_folder_that_cannot_be_written(self):
        self.write_windows(32)
        self.assertIn("Name another folder", self.train(self.configure(output_folder="/proc/none"), code=3))

    def test_a_full_disk_leaves_the_last_checkpoint(self):
        self.write_windows(32)
        self.train(self.configure())
        before = self.newest()
        if not pathlib.Path("/dev/full").exists():
            self.skipTest("no /dev/full")
        (self.folder / "out" / "step-000000000008.safetensors.new").symlink_to("/dev/full")
        self.assertIn("cannot be written: No space left", self.train(self.configure(train_epochs=2), code=3))
        read_safetensors(before)

    def test_metrics_are_lines_of_json(self):
        self.write_windows(32)
        self.train(self.configure(train_epochs=2))
        lines = [json.loads(line) for line in (self.folder / "out" / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual([line["step"] for line in lines], list(range(1, 9)))
        self.assertTrue(all(line["samples_per_second"] > 0 for line in lines))

    def shown_by_tensorboard(self):
        """Steps and losses of all event files as TensorBoard reads them: where a session starts, what it has of that step and later ones goes."""
        shown = []
        for path in sorted((self.folder / "out").glob("events.out.tfevents.*")):
            for event in events_of(path.read_bytes()):
                step = event.get(2, 0)
                if 7 in event:
                    self.assertEqual(protobuf(event[7]), {1: 1})
                    shown = [item for item in shown if item[0] < step]
                if 5 in event:
                    value = protobuf(protobuf(event[5])[1])
                    if value[1] == b"train/loss":
                        shown.append((step, struct.unpack("<f", value[2])[0]))
        return shown

    def test_tensorboard_shows_a_step_once_that_was_made_again(self):
        self.write_windows(32)
        config = self.configure(train_epochs=3)
        self.train(config)
        whole = self.shown_by_tensorboard()
        self.assertEqual([step for step, _ in whole], list(range(1, 13)))
        for _ in range(2):  # as if it had been killed before these were written
            self.newest().unlink()
        time.sleep(1.1)  # files are read in the order of their names, which begin with the second
        self.train(config)
        self.assertEqual(self.shown_by_tensorboard(), whole)
        time.sleep(1.1)
        self.train(self.configure(train_epochs=1), "--anew")
        self.assertEqual(self.shown_by_tensorboard(), whole[:4], "what an earlier training left is not shown")

    def test_a_full_disk_ends_curves_and_metrics_and_not_the_training(self):
        self.write_windows(32)
        config = self.configure(train_epochs=2)
        (self.folder / "out").mkdir()
        (self.folder / "out" / "metrics.jsonl").symlink_to("/dev/full")
        told = self.train(config)
        self.assertEqual(told.count("metrics.jsonl ends early: is the disk full?"), 1)
        self.assertEqual(self.newest_step(), 8)

    def test_metrics_hold_a_step_once_that_was_made_again(self):
        self.write_windows(32)
        config = self.configure(train_epochs=2)
        self.train(config)
        losses = self.losses()
        self.newest().unlink()  # as if it had been killed before this one was written
        self.train(config)
        self.assertEqual(self.losses(), losses)


if __name__ == "__main__":
    unittest.main()
