"""What oracle_test.py holds on the CPU, on a GPU, where each step may be one CUDA graph; elsewhere these tests skip themselves."""

import os
import unittest

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # cuDNN's recurrent kernels are then the same each time

import numpy as np
import torch
from oracle_test import OracleTest as Oracle
from recomputed_test import DROPPING, GPT2, KEYPOINT, RESNET, RecomputedCase
from support import EngineCase

GRAPH = "each step is one CUDA graph"
WITHOUT_GRAPH = {"train_compile_mode": "max-autotune-no-cudagraphs"}


@unittest.skipUnless(torch.cuda.is_available(), "no GPU")
class GpuOracleTest(Oracle):
    device = "cuda"

    def setUp(self):
        super().setUp()
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False

    def disable_onednn(self, dtype):
        """There is none on a GPU."""


class GpuOracleWithoutGraphsTest(GpuOracleTest):
    def configure(self, model="{name: lstm, hidden: 16}", **settings):
        return super().configure(model, **{"train_compile_model": "false", **settings})


del Oracle


@unittest.skipUnless(torch.cuda.is_available(), "no GPU")
class GraphTest(EngineCase):
    device = "cuda"

    def losses_of(self, *more, told="", **settings):
        """The losses of a training that begins anew; what it says must hold `told`."""
        self.assertIn(told, self.train(self.configure(data_shuffle="true", **settings), "--anew", *more))
        return self.losses()

    def test_a_graph_changes_nothing(self):
        self.write_windows(320)
        for settings in ({}, {"train_clip": 0.05}, {"train_amp": "bf16"}, {"train_amp": "fp16"}, {"optimizer_name": "sgd", "optimizer_schedule": "cosine"},
                         {"train_gradient_accumulation_steps": 4}, {"train_gradient_accumulation_steps": 3, "train_amp": "fp16", "train_epochs": 2}):
            with self.subTest(**settings):
                plain = self.losses_of(train_compile_model="false", **settings)
                self.assertEqual(self.losses_of(told=GRAPH, **settings), plain)

    def test_a_graph_leaves_dropout_at_random_and_reproducible(self):
        self.write_windows(320)
        model = "{name: lstm, hidden: 16, dropout: 0.5}"
        first = self.losses_of(told=GRAPH, model=model, train_epochs=2)
        self.assertEqual(self.losses_of(model=model, train_epochs=2), first)
        self.assertEqual(len(set(first)), len(first))

    def test_samples_on_the_gpu_are_the_same(self):
        self.write_windows(320)
        copied = self.losses_of(train_epochs=2)
        self.assertEqual(self.losses_of(train_epochs=2, data_device_cache_gb=1), copied)
        self.assertEqual(self.losses_of(train_epochs=2, train_pin_memory="false"), copied)

    def test_it_goes_on_to_the_same_losses(self):
        """Also with cuDNN's dropout, whose state no checkpoint holds."""
        self.write_windows(320)
        for settings in ({}, {"model": "{name: lstm, hidden: 16, dropout: 0.5}"}, {"model": "{name: lstm, hidden: 16, dropout: 0.5}", "train_compile_model": "false"}):
            with self.subTest(**settings):
                whole = self.losses_of(train_epochs=4, **settings)
                first = self.losses_of(train_epochs=2, **settings)
                self.assertIn("goes on from", self.train(self.configure(data_shuffle="true", train_epochs=4, **settings)))
                self.assertEqual(first, whole[:len(first)])
                self.assertEqual(self.losses()[-80:], whole[-80:])


@unittest.skipUnless(torch.cuda.is_available(), "no GPU")
class FusedNormTest(RecomputedCase):
    device = "cuda"

    def outcome(self, model, **settings):
        return super().outcome(model, hardware_deterministic="true", **settings)

    def test_they_are_told(self):
        self.write_samples()
        for model, norms in ((KEYPOINT, 27), (RESNET, 53)):
            for settings, in_force in (({}, "a CUDA graph of each step, fused batch norms (LibTorch has no compiler)"),
                                       (WITHOUT_GRAPH, "fused batch norms (LibTorch has no compiler, and train.compile_mode wants no graph)")):
                told = self.outcome(model, **settings)[2]
                self.assertIn(f"fused batch norms: {norms} of {norms}", told)
                self.assertIn(in_force, told)
        self.assertIn("no fused batch norms: train.channels_last is false", self.outcome(KEYPOINT, train_channels_last="false")[2])
        self.assertIn("fused batch norms: 9 of 27", self.outcome("{name: keypoint, channels: 1}", train_amp="bf16")[2])
        self.assertNotIn("fused batch norms", self.outcome(KEYPOINT, train_compile_model="false")[2])

    def test_a_graph_changes_nothing(self):
        self.write_samples()
        for model in (KEYPOINT, RESNET):
            for precision in ("false", "bf16", "fp16"):
                with self.subTest(model=model, precision=precision):
                    losses, tensors, told = self.outcome(model, train_amp=precision)
                    self.assertIn(GRAPH, told)
                    same, others, told = self.outcome(model, train_amp=precision, **WITHOUT_GRAPH)
                    self.assertNotIn(GRAPH, told)
                    self.assertEqual(same, losses)
                    for name, tensor in tensors.items():
                        self.assertTrue(torch.equal(tensor, others[name]), name)

    def test_the_first_losses_are_torchs(self):
        """Later ones are not: rounding grows, as it does from one PyTorch to another."""
        self.write_samples()
        for model in (KEYPOINT, RESNET):
            for precision, bits in (("false", 24), ("bf16", 8), ("fp16", 11)):
                with self.subTest(model=model, precision=precision):
                    fused = self.outcome(model, train_amp=precision)[0]
                    plain = self.outcome(model, train_amp=precision, train_compile_model="false")[0]
                    np.testing.assert_allclose(fused[0], plain[0], rtol=2 ** -bits * 2 * 53, err_msg="at most 53 convolutions and as many norms are rounded")


@unittest.skipUnless(torch.cuda.is_available(), "no GPU")
class FusedLossTest(RecomputedCase):
    """Of a vocabulary that is no multiple of what tensor cores want."""

    device = "cuda"

    def test_it_is_told(self):
        self.write_samples()
        told = self.outcome(GPT2)[2]
        self.assertIn("fused loss: cross-entropy", told)
        self.assertIn("a CUDA graph of each step, fused loss (LibTorch has no compiler)", told)
        self.assertNotIn("fused loss", self.outcome(GPT2, train_compile_model="false")[2])

    def test_losses_and_weights_are_those_of_the_cpu(self):
        self.write_samples()
        losses, tensors, _ = self.outcome(GPT2, hardware_device="cpu")
        for settings in ({}, {"train_compile_model": "false"}, {"train_amp": "bf16"}, {"train_amp": "fp16"}):
            with self.subTest(**settings):
                found, others, _ = self.outcome(GPT2, **settings)
                rounding = 2**-8 if "train_amp" in settings else 1e-5
                np.testing.assert_allclose(found, losses, rtol=rounding)
                if "train_amp" not in settings:
                    torch.testing.assert_close(others["transformer.wte.weight"], tensors["transformer.wte.weight"], rtol=1e-3, atol=1e-4)

    def test_a_graph_changes_nothing(self):
        self.write_samples()
        for model in (GPT2, DROPPING):
            for precision in ("false", "bf16", "fp16"):
                with self.subTest(model=model, precision=precision):
                    losses, tensors, _ = self.outcome(model, train_amp=precision, hardware_deterministic="true")
                    same, others, _ = self.outcome(model, train_amp=precision, hardware_deterministic="true", **WITHOUT_GRAPH)
                    self.assertEqual(same, losses)
                    for name, tensor in tensors.items():
                        self.assertTrue(torch.equal(tensor, others[name]), name)


@unittest.skipUnless(torch.cuda.is_available(), "no GPU")
class MemoryTest(EngineCase):
    device = "cuda"

    def trained(self, megabytes, channels=16, code=0, **settings):
        """What a training says on a card of so much memory."""
        share = megabytes * 2 ** 20 / torch.cuda.get_device_properties(0).total_memory
        config = self.configure(f"{{name: keypoint, channels: {channels}}}", train_batch_size=64, **settings)
        return self.train(config, "--anew", code=code, PYTORCH_ALLOC_CONF=f"per_process_memory_fraction:{share:.6f}")

    def write_pictures(self, samples=128):
        random = np.random.default_rng(2)
        np.save(self.folder / "images.npy", random.integers(0, 256, (samples, 3, 160, 320), dtype=np.uint8))
        heatmaps = random.random((samples, 2, 40, 80), dtype=np.float32) * 0.9
        heatmaps[:, :, 3, 5] = 1
        np.save(self.folder / "heatmaps.npy", heatmaps)
        np.save(self.folder / "offsets.npy", random.random((samples, 4, 40, 80), dtype=np.float32))

    def test_a_batch_without_room_is_computed_in_pieces(self):
        self.write_pictures()
        for settings in ({}, {"train_compile_model": "false"}):
            with self.subTest(**settings):
                self.trained(16_000, **settings)
                whole = self.losses()
                self.assertIn("out of memory: each batch is computed in", self.trained(350, **settings))
                self.assertEqual(len(self.losses()), len(whole))
                np.testing.assert_allclose(self.losses(), whole, rtol=0.05, err_msg="batch norm sees the pieces")

    def test_too_little_for_one_sample_is_told(self):
        self.write_pictures()
        self.assertIn("memory of the device", self.trained(30, channels=48, code=3))


if __name__ == "__main__":
    unittest.main()
