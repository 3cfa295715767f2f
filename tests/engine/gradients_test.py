"""The engine's gradients against PyTorch's in float32. Where AdamW's first beta is 0, the mean that it keeps is the last gradient, to the bit."""

import copy
import unittest

import numpy as np
import torch
from models_test import foretelling_loss, labelling_loss, steady_resnet
from oracle_test import forecast_loss
from recomputed_test import GPT2, KEYPOINT, RESNET, RecomputedCase
from references import Gpt2
from support import Forecaster, read_safetensors, write_safetensors


def gradients(model, loss_of, batch, dtype):
    model = copy.deepcopy(model).to(dtype)
    loss_of(model, [field.to(dtype) if field.is_floating_point() else field for field in batch]).backward()
    return {name: parameter.grad.double() for name, parameter in model.named_parameters()}


class GradientsTest(RecomputedCase):
    def load(self, name, layout):
        field = torch.from_numpy(np.load(self.folder / f"{name}.npy"))
        field = field.float() / 255 if field.dtype == torch.uint8 else field
        return field.contiguous(memory_format=layout) if field.dim() == 4 else field

    def compare(self, settings, model, loss_of, *fields, layout=torch.contiguous_format):
        """Of one step with all samples."""
        first = self.folder / "first.safetensors"
        write_safetensors(first, model.state_dict())
        channels_last = str(layout == torch.channels_last).lower()
        config = self.configure(settings, train_batch_size=32, optimizer_betas="[0, 0.999]", train_channels_last=channels_last)
        self.train(config, "--anew", "--initial", first)
        stored, _ = read_safetensors(self.newest())
        batch = [self.load(name, layout) for name in fields]
        single, double = (gradients(model.to(memory_format=layout), loss_of, batch, dtype) for dtype in (torch.float32, torch.float64))
        for name, expected in single.items():
            self.assert_near(stored[f"optimizer.mean.{name}"].double(), expected, double[name], name)

    def assert_near(self, found, single, double, name):
        """The kernels are the same but for GPT-2's attention, which adds in another order. That moves a gradient about as far as float32 is away from float64,
        which in a small tensor may be little by chance: so ten times as far, and 8 units in the last place (2^-23) of the largest number."""
        allowed = 10 * (single - double).abs().max() + 8 * 2 ** -23 * double.abs().max()
        self.assertLessEqual((found - single).abs().max(), allowed, name)

    def test_the_lstm(self):
        self.write_windows(32)
        self.compare("{name: lstm, hidden: 16}", Forecaster(), forecast_loss, "windows", "targets")

    def test_the_keypoint_network_in_both_layouts(self):
        from network import KeypointNetwork, focal_loss, offset_loss

        def loss_of(model, batch):
            images, target, offsets = batch
            heatmaps, moved = model(images)
            return focal_loss(heatmaps, target) + offset_loss(moved, offsets, target)

        self.write_samples()
        model = KeypointNetwork(8)
        for layout in (torch.contiguous_format, torch.channels_last):
            with self.subTest(layout=layout):
                self.compare(KEYPOINT, model, loss_of, "images", "heatmaps", "offsets", layout=layout)

    def test_gpt2(self):
        self.write_samples()
        self.compare(GPT2, Gpt2(50, 8, 2, 3, 16), lambda model, batch: foretelling_loss(model, batch[0]), "tokens")

    def test_resnet50(self):
        self.write_samples()
        self.compare(RESNET, steady_resnet(), labelling_loss, "images", "labels", layout=torch.channels_last)


if __name__ == "__main__":
    unittest.main()
