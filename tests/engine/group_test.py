"""Processes that train together, on loopback: the same weights as one alone, one writer, an end in order, and what happens when one is lost."""

import os
import re
import shutil
import signal
import socket
import subprocess
import time
import unittest

import numpy as np
from support import PROGRAM, EngineCase, Forecaster, read_safetensors, write_safetensors

LONGEST_S = 120


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class GroupCase(EngineCase):
    def start_all(self, config, *arguments, processes=2):
        """As torchrun does it."""
        place = {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
        started = []
        for rank in range(processes):
            own = {**os.environ, **place, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            started.append(subprocess.Popen([PROGRAM, str(config), *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=own))
            self.addCleanup(started[-1].communicate)
            self.addCleanup(started[-1].kill)
        return started

    def end_all(self, started, code):
        told = [process.communicate(timeout=LONGEST_S)[1] for process in started]
        self.assertEqual([process.returncode for process in started], [code] * len(started), told)
        return told

    def wait_for_checkpoint(self):
        deadline = time.monotonic() + LONGEST_S
        while not list((self.folder / "out").glob("step-*.safetensors")):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)


class TogetherTest(GroupCase):
    def compare(self, processes=2, accumulation=1, samples=192, hidden=16, **settings):
        self.write_windows(samples)
        model = Forecaster(hidden=hidden)
        network = f"{{name: lstm, hidden: {hidden}}}"
        write_safetensors(self.folder / "first.safetensors", model.state_dict())
        common = {"train_epochs": 2, "data_shuffle": "true", "train_clip": 0.5, **settings}
        self.train(self.configure(network, train_batch_size=24, train_gradient_accumulation_steps=accumulation, **common), "--anew", "--initial", self.folder / "first.safetensors")
        alone, losses = read_safetensors(self.newest())[0], self.losses()
        shared = self.configure(network, train_batch_size=24 // processes, train_gradient_accumulation_steps=accumulation, **common)
        told = self.end_all(self.start_all(shared, "--anew", "--initial", self.folder / "first.safetensors", processes=processes), 0)
        self.assertIn(f"{processes} processes", told[0])
        self.assertEqual("".join(told[1:]), "", "only the first one speaks")
        np.testing.assert_allclose(self.losses(), losses, rtol=2e-6)
        together, _ = read_safetensors(self.newest())
        for name in model.state_dict():
            np.testing.assert_allclose(together[name].numpy(), alone[name].numpy(), rtol=2e-5, atol=2e-6, err_msg=name)

    def test_two_processes_make_the_steps_of_one(self):
        self.compare()

    def test_three_that_accumulate_from_samples_on_the_device(self):
        self.compare(processes=3, accumulation=3, data_device_cache_gb=1)

    def test_gradients_of_several_buckets(self):
        """27 MiB make three, of 0.1, 18 and 9 MiB. At this rate every tensor moves by 4e-3 or more, a thousand times what may differ: a bucket that is lost, late
        or not averaged shows."""
        self.compare(samples=48, hidden=768, optimizer_name="sgd", optimizer_momentum=0, optimizer_lr=3, train_clip=0)

    def test_dropout_goes_on_as_without_an_interruption(self):
        self.write_windows(32)
        losses = []
        for parts in ([2], [1, 2]):
            shutil.rmtree(self.folder / "out", ignore_errors=True)
            for epochs in parts:
                self.end_all(self.start_all(self.configure("{name: lstm, hidden: 16, dropout: 0.3}", train_epochs=epochs)), 0)
            losses.append(self.losses())
        self.assertEqual(losses[0], losses[1])

    def test_half_precision_overflows_for_all_alike(self):
        self.write_windows(96, scale=300)
        self.end_all(self.start_all(self.configure(train_amp="fp16")), 0)
        self.assertLess(read_safetensors(self.newest())[0]["scaler.scale"].item(), 65536)


class EndTest(GroupCase):
    def endless(self, **settings):
        return self.configure(train_epochs=100000, train_log_every=1000, hardware_timeout_seconds=30, **settings)

    def test_one_that_is_asked_to_stop_stops_all(self):
        self.write_windows(32)
        started = self.start_all(self.endless())
        self.wait_for_checkpoint()
        started[1].send_signal(signal.SIGINT)
        told = self.end_all(started, 130)
        self.assertIn("the same command goes on", told[0])

    def test_one_that_is_lost_ends_the_others_and_the_next_start_goes_on(self):
        self.write_windows(32)
        for lost in (0, 1):
            with self.subTest(lost=lost):
                shutil.rmtree(self.folder / "out", ignore_errors=True)
                started = self.start_all(self.endless())
                self.wait_for_checkpoint()
                started[lost].kill()
                other = started[1 - lost]
                _, told = other.communicate(timeout=LONGEST_S)
                self.assertEqual(other.returncode, 3, told)
                self.assertIn("lost the other processes", told)
        step = int(re.search(r"step-(\d+)", self.newest().name).group(1))
        told = self.end_all(self.start_all(self.configure(train_epochs=step // 2 + 2)), 0)
        self.assertIn("goes on from", told[0])

    def test_places_that_are_wrong_are_told(self):
        self.write_windows(32)
        process = subprocess.run([PROGRAM, str(self.configure())], env={**os.environ, "RANK": "2", "WORLD_SIZE": "2"}, capture_output=True, text=True, timeout=LONGEST_S)
        self.assertEqual(process.returncode, 2)
        self.assertIn("RANK must be a number from 0 to 1, not '2'", process.stderr)


if __name__ == "__main__":
    unittest.main()
