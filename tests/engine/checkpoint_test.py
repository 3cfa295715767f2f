"""Checkpoints: what is in them, and that they and the package safetensors read each other."""

import importlib.util
import json
import struct
import unittest
import zlib

import torch
from recomputed_test import KEYPOINT, RecomputedCase
from support import EngineCase, Forecaster, read_safetensors, write_safetensors


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
        del metadata["crc32"], metadata["fullwatt_schema"]  # of the header and the tensors in our order
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


class CheckpointTest(EngineCase):
    def setUp(self):
        super().setUp()
        self.write_windows(32)

    def rewrite(self, change):
        """The newest checkpoint with another header."""
        raw = self.newest().read_bytes()
        (length,) = struct.unpack("<Q", raw[:8])
        header = json.loads(raw[8:8 + length])
        change(header, raw[8 + length:])
        text = json.dumps(header).encode()
        self.newest().write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + length:])

    def test_first_weights_of_any_float_type_are_those_of_python(self):
        for dtype in (torch.bfloat16, torch.float16, torch.float64):
            weights = {name: tensor.to(dtype) for name, tensor in Forecaster().state_dict().items()}
            write_safetensors(self.folder / "first.safetensors", weights)
            self.train(self.configure(optimizer_lr=0), "--anew", "--initial", self.folder / "first.safetensors")
            stored, _ = read_safetensors(self.newest())
            for name, tensor in weights.items():
                self.assertTrue(torch.equal(stored[name], tensor.float()), (dtype, name))

    def test_a_type_that_is_not_read_is_named(self):
        text = b'{"head.weight":{"dtype":"F8_E5M2","shape":[1],"data_offsets":[0,1]}}'
        path = self.folder / "first.safetensors"
        path.write_bytes(struct.pack("<Q", len(text)) + text + b"x")
        told = self.train(self.configure(), "--initial", path, code=3)
        self.assertIn(f"{path}: 'head.weight' is of the type F8_E5M2, which is not read", told)
        self.assertIn("Save it as float32, float16 or bfloat16", told)

    def test_a_changed_place_in_the_training_is_noticed(self):
        self.train(self.configure())
        raw = self.newest().read_bytes()
        self.assertEqual(raw.count(b'"step":"4"'), 1)
        self.newest().write_bytes(raw.replace(b'"step":"4"', b'"step":"3"'))
        self.assertIn("it does not fit its checksum", self.train(self.configure(train_epochs=2), code=3))

    def test_a_checkpoint_from_before_the_schema_is_gone_on_from(self):
        self.train(self.configure(train_epochs=2))
        losses = self.losses()
        self.train(self.configure(), "--anew")

        def as_before(header, data):
            del header["__metadata__"]["fullwatt_schema"]
            header["__metadata__"]["crc32"] = f"{zlib.crc32(data):08x}"

        self.rewrite(as_before)
        self.assertIn(f"goes on from {self.newest()}", self.train(self.configure(train_epochs=2)))
        self.assertEqual(self.losses(), losses)

    def test_a_checkpoint_of_a_later_fullwatt_is_refused(self):
        self.train(self.configure())
        self.rewrite(lambda header, _: header["__metadata__"].update(fullwatt_schema="3"))
        told = self.train(self.configure(train_epochs=2), code=3)
        self.assertIn("it is of the schema 3, and this fullwatt reads 2", told)
        self.assertIn("Take the fullwatt that wrote it", told)

    def test_weights_alone_are_no_checkpoint(self):
        self.train(self.configure())
        self.rewrite(lambda header, _: header.update({"__metadata__": {"format": "pt"}}))
        told = self.train(self.configure(train_epochs=2), code=3)
        self.assertIn("it does not tell its epoch: it is no checkpoint", told)
        self.assertIn("Weights alone are for --initial", told)


if __name__ == "__main__":
    unittest.main()
