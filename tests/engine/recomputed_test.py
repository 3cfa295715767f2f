"""Activations that are computed again in backward: the same losses, weights, statistics and random numbers to the bit, in less memory."""

import os
import subprocess
import sys
import unittest

import numpy as np
import torch
from group_test import GroupCase
from support import PROGRAM, EngineCase, read_safetensors

SETTING = "train_activation_checkpointing"
GPT2 = "{name: gpt2, vocabulary: 50, context: 8, heads: 2, layers: 3, embedding: 16}"
DROPPING = GPT2.replace("}", ", dropout: 0.3}")
RESNET = "{name: resnet50, width: 8, classes: 5}"
KEYPOINT = "{name: keypoint, channels: 8}"


class RecomputedCase(EngineCase):
    def write_samples(self):
        """For every model."""
        random = np.random.default_rng(5)
        heatmaps = random.random((32, 2, 8, 16), dtype=np.float32) * 0.9
        heatmaps[:, :, 3, 5] = 1
        for name, array in (("tokens", random.integers(0, 50, (32, 9))), ("labels", random.integers(0, 5, 32)), ("heatmaps", heatmaps),
                            ("images", random.integers(0, 256, (32, 3, 32, 64), dtype=np.uint8)), ("offsets", random.random((32, 4, 8, 16), dtype=np.float32))):
            np.save(self.folder / f"{name}.npy", array)

    def outcome(self, model, **settings):
        """Losses and everything that a checkpoint holds, and what was said."""
        told = self.train(self.configure(model, train_epochs=2, **settings), "--anew")
        return self.losses(), read_safetensors(self.newest())[0], told

    def assert_nothing_changes(self, model, **settings):
        losses, tensors, _ = self.outcome(model, **settings)
        again, same, told = self.outcome(model, **settings, **{SETTING: "true"})
        self.assertEqual(again, losses)
        self.assertEqual(set(same), set(tensors))
        for name, tensor in tensors.items():
            self.assertTrue(torch.equal(tensor, same[name]), name)
        return told


class RecomputedTest(RecomputedCase):
    def test_nothing_changes_in_any_model_and_precision(self):
        self.write_samples()
        for model in (GPT2, DROPPING, RESNET, KEYPOINT):
            for precision in ("false", "bf16"):
                with self.subTest(model=model, precision=precision):
                    told = self.assert_nothing_changes(model, train_amp=precision)
                    self.assertNotIn("* train.activation_checkpointing", told)

    def test_nothing_changes_with_other_settings(self):
        self.write_samples()
        for settings in ({"train_gradient_accumulation_steps": 3, "train_clip": 0.1}, {"train_amp": "fp16"}, {"optimizer_name": "sgd"}):
            with self.subTest(**settings):
                self.assert_nothing_changes(DROPPING, **settings)

    def test_a_training_that_was_interrupted_goes_on_to_the_same_weights(self):
        self.write_samples()
        settings = {SETTING: "true", "data_shuffle": "true"}
        losses, tensors, _ = self.outcome(DROPPING, **settings)
        for path in (self.folder / "out").glob("step-*"):
            path.unlink()
        self.train(self.configure(DROPPING, train_epochs=1, **settings))
        self.train(self.configure(DROPPING, train_epochs=2, **settings))
        self.assertEqual(self.losses(), losses)
        for name, tensor in read_safetensors(self.newest())[0].items():
            self.assertTrue(torch.equal(tensor, tensors[name]), name)

    def test_the_table_says_that_an_lstm_has_nothing_to_compute_again(self):
        self.write_windows(32)
        told = self.train(self.configure(**{SETTING: "true"}))
        (line,) = [line for line in told.splitlines() if line.startswith("* train.activation_checkpointing")]
        self.assertIn("false (the model lstm has nothing worth computing again)", line)

    def peak_megabytes(self, config):
        """The most memory that a training had at once. A small program starts it: until it begins it counts the memory of what started it as its own."""
        at_once_given_back = "MALLOC_MMAP_THRESHOLD_=65536"
        command = ["env", "OMP_NUM_THREADS=1", at_once_given_back, PROGRAM, str(config), "--anew"]
        watch = f"import resource, subprocess; subprocess.run({command}, check=True, capture_output=True); print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
        return int(subprocess.run([sys.executable, "-c", watch], check=True, capture_output=True, text=True).stdout) / 1024

    def test_it_needs_less_memory(self):
        """Twelve layers keep 16 or more tensors of 64·256·64 numbers, 4 MiB each; computed again they keep one, and those of one layer at a time. Half of the
        difference is enough: at its start the program has more memory for a while than a small training needs."""
        np.save(self.folder / "tokens.npy", np.random.default_rng(6).integers(0, 50, (64, 257)))
        model = "{name: gpt2, vocabulary: 50, context: 256, heads: 2, layers: 12, embedding: 64}"
        peaks = [self.peak_megabytes(self.configure(model, train_batch_size=64, **{SETTING: value})) for value in ("false", "true")]
        self.assertGreater(peaks[0] - peaks[1], 11 * 15 * 4 / 2, peaks)


class TogetherTest(GroupCase, RecomputedCase):
    def test_processes_average_the_same_gradients(self):
        self.write_samples()
        outcomes = []
        for value in ("false", "true"):
            self.end_all(self.start_all(self.configure(DROPPING, train_epochs=2, **{SETTING: value}), "--anew"), 0)
            outcomes.append((self.losses(), read_safetensors(self.newest())[0]))
        (losses, tensors), (again, same) = outcomes
        self.assertEqual(again, losses)
        for name, tensor in tensors.items():
            self.assertTrue(torch.equal(tensor, same[name]), name)


@unittest.skipUnless(torch.cuda.is_available(), "no GPU")
class GpuRecomputedTest(RecomputedCase):
    device = "cuda"

    def assert_nothing_changes(self, model, **settings):
        return super().assert_nothing_changes(model, hardware_deterministic="true", **settings)

    def setUp(self):
        super().setUp()
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"

    def test_nothing_changes_with_and_without_graphs(self):
        self.write_samples()
        for model in (GPT2, RESNET, KEYPOINT):
            for graph in ("false", "true"):
                with self.subTest(model=model, graph=graph):
                    told = self.assert_nothing_changes(model, train_amp="bf16", train_compile_model=graph)
                    self.assertEqual("each step is one CUDA graph" in told, graph == "true")

    def test_dropout_is_the_same_again_and_in_no_graph(self):
        self.write_samples()
        self.assert_nothing_changes(DROPPING, train_compile_model="false")
        told = self.outcome(DROPPING, **{SETTING: "true"})[2]
        self.assertIn("no CUDA graph of the step: dropout that is computed again", told)


if __name__ == "__main__":
    unittest.main()
