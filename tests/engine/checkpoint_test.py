"""Checkpoints and the package safetensors: each reads what the other wrote."""

import importlib.util
import unittest

import torch
from recomputed_test import KEYPOINT, RecomputedCase
from support import read_safetensors


@unittest.skipUnless(importlib.util.find_spec("safetensors"), "no package safetensors")
class SafetensorsTest(RecomputedCase):
    def assert_equal(self, tensors, expected):
        self.assertEqual(set(tensors), set(expected))
        for name, tensor in expected.items():
            self.assertEqual(tensors[name].dtype, tensor.dtype, name)
            self.assertTrue(torch.equal(tensors[name], tensor), name)

    def test_first_weights_that_it_wrote_are_those_it_reads(self):
        from network import KeypointNetwork
        from safetensors.torch import load_file, save_file

        self.write_samples()
        first = KeypointNetwork(8).state_dict()
        save_file(first, self.folder / "first.safetensors")
        self.train(self.configure(KEYPOINT, optimizer_lr=0), "--initial", self.folder / "first.safetensors")
        stored = load_file(self.newest())
        self.assert_equal(stored, read_safetensors(self.newest())[0])
        weights = {name for name in first if not name.endswith(("running_mean", "running_var", "num_batches_tracked"))}
        self.assert_equal({name: stored[name] for name in weights}, {name: first[name] for name in weights})

    def test_a_training_goes_on_from_a_checkpoint_that_it_wrote(self):
        from safetensors import safe_open
        from safetensors.torch import load_file, save_file

        self.write_samples()
        self.train(self.configure(KEYPOINT, train_epochs=2))
        whole, losses = load_file(self.newest()), self.losses()
        self.train(self.configure(KEYPOINT), "--anew")
        path = self.newest()
        with safe_open(path, "pt") as file:
            metadata = file.metadata()
        del metadata["crc32"]  # of the tensors in our order
        save_file(load_file(path), path, metadata)
        self.assertIn(f"goes on from {path}", self.train(self.configure(KEYPOINT, train_epochs=2)))
        self.assertEqual(self.losses(), losses)
        self.assert_equal(load_file(self.newest()), whole)

    def test_what_is_no_number_is_not_saved(self):
        from network import KeypointNetwork
        from safetensors.torch import save_file

        self.write_samples()
        first = KeypointNetwork(8).state_dict()
        next(value for name, value in first.items() if name.endswith("running_var")).fill_(float("nan"))  # the loss of a training does not see it
        save_file(first, self.folder / "first.safetensors")
        told = self.train(self.configure(KEYPOINT, optimizer_lr=0), "--initial", self.folder / "first.safetensors", code=3)
        self.assertRegex(told, r"'\S+running_var' holds what is no number any more after step \d+")
        self.assertEqual([path.name for path in self.folder.rglob("*.safetensors")], ["first.safetensors"])


if __name__ == "__main__":
    unittest.main()
