"""ResNet-50 and GPT-2 of the engine against PyTorch: the same first weights and data, the same losses, weights and statistics after."""

import math
import unittest

import numpy as np
import torch
from oracle_test import trained_by_torch
from references import Gpt2, ResNet
from support import EngineCase, read_safetensors, write_safetensors
from torch.nn.functional import cross_entropy

BATCH, STEPS = 8, 10
RESNET = "{name: resnet50, width: 8, classes: 5}"
GPT2 = "{name: gpt2, vocabulary: 50, context: 8, heads: 2, layers: 2, embedding: 16}"
# Where a gradient is nothing but rounding, such as that of the keys' bias, which softmax does not see, AdamW makes a step of the whole learning rate
# of it, either way. This epsilon is far above the rounding (some 1e-8), and far enough below most gradients that AdamW stays AdamW.
EPSILON = 1e-3


def labelling_loss(model, batch):
    images, labels = batch
    return cross_entropy(model(images), labels)


def foretelling_loss(model, tokens):
    return cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten().long())


def steady_resnet():
    """From the usual first weights rounding grows to a fifth of the loss within ten steps, in PyTorch as well: deep layers divide by small differences, and an
    activation near zero is cut off or not. So blocks add little to their shortcuts, and activations keep three deviations from zero, above or below."""
    model = ResNet(8, 5)
    for name, module in model.named_modules():
        if not isinstance(module, torch.nn.BatchNorm2d):
            continue
        scale = 0.1 if name.endswith("bn3") else 1
        torch.nn.init.constant_(module.weight, scale)
        torch.nn.init.constant_(module.bias[0::2], 3 * scale)
        torch.nn.init.constant_(module.bias[1::2], -3 * scale)
    return model


class ModelCase(EngineCase):
    def write_pictures(self):
        """Of coarse patches, since noise alone is alike in all to the deep layers, which divide by the differences; with some noise, since rounding would
        choose the largest of equal points."""
        random = np.random.default_rng(3)
        images = random.integers(0, 192, (BATCH * STEPS, 3, 4, 4), dtype=np.uint8).repeat(8, 2).repeat(8, 3)
        images += random.integers(0, 64, images.shape, dtype=np.uint8)
        labels = random.integers(0, 5, BATCH * STEPS)
        np.save(self.folder / "images.npy", images)
        np.save(self.folder / "labels.npy", labels)
        return list(zip((torch.from_numpy(images).float() / 255).split(BATCH), torch.from_numpy(labels).split(BATCH)))

    def write_tokens(self, dtype=np.int64):
        tokens = np.random.default_rng(4).integers(0, 50, (BATCH * STEPS, 9)).astype(dtype)
        np.save(self.folder / "tokens.npy", tokens)
        return list(torch.from_numpy(tokens.astype(np.int64)).split(BATCH))

    def weights(self):
        """Of the newest checkpoint, without what the optimiser keeps."""
        return {name: tensor for name, tensor in read_safetensors(self.newest())[0].items() if not name.startswith(("optimizer.", "random."))}


class OracleTest(ModelCase):
    def train_both(self, settings, model, loss_of, batches, **more):
        """The losses that PyTorch has."""
        write_safetensors(self.folder / "first.safetensors", model.state_dict())
        self.train(self.configure(settings, optimizer_eps=EPSILON, **more), "--anew", "--initial", self.folder / "first.safetensors")
        return trained_by_torch(model, loss_of, batches, eps=EPSILON)

    def assert_same(self, model, losses, tolerance):
        """Of a loss; weights and statistics may be four times as far away, while ten steps move weights by 3e-3. The tolerances are three to five times
        what PyTorch in float32 is away from itself in float64."""
        np.testing.assert_allclose(self.losses(), losses, rtol=tolerance)
        stored, expected = self.weights(), model.state_dict()
        self.assertEqual(set(stored), set(expected))
        for name, tensor in expected.items():
            np.testing.assert_allclose(stored[name].numpy(), tensor.numpy(), rtol=4 * tolerance, atol=4 * tolerance, err_msg=name)

    def test_ten_steps_of_resnet50_in_both_layouts(self):
        batches = self.write_pictures()
        for channels_last in ("false", "true"):
            with self.subTest(channels_last=channels_last):
                model = steady_resnet()
                self.assert_same(model, self.train_both(RESNET, model, labelling_loss, batches, train_channels_last=channels_last), tolerance=5e-6)

    def test_ten_steps_of_gpt2(self):
        for dtype in (np.int32, np.int64):
            with self.subTest(dtype=dtype):
                model = Gpt2(50, 8, 2, 2, 16)
                self.assert_same(model, self.train_both(GPT2, model, foretelling_loss, self.write_tokens(dtype)), tolerance=1e-6)

    def test_bfloat16_stays_near(self):
        for settings, model, loss_of, batches in ((RESNET, steady_resnet(), labelling_loss, self.write_pictures()),
                                                  (GPT2, Gpt2(50, 8, 2, 2, 16), foretelling_loss, self.write_tokens())):
            with self.subTest(model=settings):
                losses = self.train_both(settings, model, loss_of, batches, train_amp="bf16")
                self.assertNotEqual(self.losses(), losses)
                np.testing.assert_allclose(self.losses(), losses, rtol=2 ** -8 * math.sqrt(53), err_msg="bfloat16 has 8 bits; errors of 53 convolutions add up")


class FirstWeightsTest(ModelCase):
    def first_weights(self, settings):
        self.train(self.configure(settings, optimizer_lr=0))
        return self.weights()

    def assert_spread(self, name, tensor, deviation):
        """Within five deviations of what as many random numbers show."""
        count = tensor.numel()
        self.assertAlmostEqual(tensor.mean().item(), 0, delta=5 * deviation / math.sqrt(count), msg=name)
        self.assertAlmostEqual(tensor.std().item(), deviation, delta=5 * deviation / math.sqrt(2 * count), msg=name)

    def assert_constant(self, name, tensor, value):
        self.assertTrue(torch.equal(tensor, torch.full_like(tensor, value)), name)

    def test_resnet50_begins_as_torchvision_has_it(self):
        self.write_pictures()
        weights = self.first_weights(RESNET)
        for name, _ in ResNet(8, 5).named_parameters():
            tensor = weights[name]
            if tensor.dim() == 4:
                outputs, _, height, width = tensor.shape
                self.assert_spread(name, tensor, math.sqrt(2 / (outputs * height * width)))
            elif name == "fc.weight":
                self.assert_spread(name, tensor, 1 / math.sqrt(3 * tensor.shape[1]))
            elif name != "fc.bias":
                self.assert_constant(name, tensor, 1 if name.endswith(".weight") else 0)

    def test_gpt2_begins_as_it_was_published(self):
        self.write_tokens()
        for name, tensor in self.first_weights(GPT2).items():
            if tensor.dim() == 2:
                self.assert_spread(name, tensor, 0.02 / math.sqrt(2 * 2) if name.endswith("c_proj.weight") else 0.02)
            else:
                self.assert_constant(name, tensor, 1 if name.endswith(".weight") else 0)


class SizeTest(ModelCase):
    def start_line(self, settings):
        """The program is ended once it has told it."""
        process = self.start(self.configure(settings))
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        told = ""
        for line in process.stderr:
            told += line
            if " parameters, " in line:
                return line
        return told

    def test_resnet50_has_as_many_parameters_as_torchvisions(self):
        self.write_pictures()
        self.assertIn("25557032 parameters", self.start_line("{name: resnet50}"))

    def test_gpt2_has_as_many_parameters_as_the_published_one(self):
        self.write_tokens()
        self.assertIn("124439808 parameters", self.start_line("{name: gpt2, layers: 12}"))


class WrongDataTest(ModelCase):
    def test_tokens_that_are_not_as_the_model_needs_them(self):
        self.write_tokens(np.uint8)
        self.assertIn("Long, Int", self.train(self.configure(GPT2), code=3))
        self.write_tokens()
        self.assertIn("a sample has 9 tokens; model.context must be at least 8", self.train(self.configure(GPT2), "--set", "model.context=7", code=3))

    def test_numbers_that_the_model_does_not_have(self):
        self.write_pictures()
        for wrong in (5, -1):
            labels = np.zeros(BATCH * STEPS, np.int64)
            labels[3 * BATCH] = wrong
            np.save(self.folder / "labels.npy", labels)
            for more in ([], ["--set", "data.device_cache_gb=1"]):
                text = self.train(self.configure(RESNET), "--anew", *more, code=3)
                self.assertIn(f"{self.folder}/labels.npy, row {3 * BATCH} (the first is 0): the field labels holds {wrong}", text)
                self.assertIn("from 0 to 4", text)

    def test_a_wrong_number_is_named_by_its_file_and_row_and_the_last_checkpoint_stays(self):
        self.write_pictures()
        (self.folder / "labels.npy").unlink()
        for part in range(2):
            np.save(self.folder / f"{part}_labels.npy", np.zeros(BATCH * STEPS // 2, np.int64))
        self.train(self.configure(RESNET, data_shuffle="true"))
        checkpoint = self.newest()
        before = checkpoint.read_bytes()
        labels = np.zeros(BATCH * STEPS // 2, np.int64)
        labels[3] = 7
        np.save(self.folder / "1_labels.npy", labels)
        text = self.train(self.configure(RESNET, data_shuffle="true", train_epochs=2), code=3)
        self.assertIn(f"{self.folder}/1_labels.npy, row 3 (the first is 0): the field labels holds 7", text)
        self.assertIn(f"The last checkpoint is whole: {checkpoint}", text)
        self.assertEqual(checkpoint.read_bytes(), before)

    def test_a_limit_of_ones_own_may_be_lower_and_not_higher(self):
        self.write_pictures()
        np.save(self.folder / "labels.npy", np.full(BATCH * STEPS, 4, np.int64))
        self.assertIn("from 0 to 2", self.train(self.configure(RESNET), "--set", "data.limits.labels=3", code=3))
        self.train(self.configure(RESNET), "--set", "data.limits.labels=9")
        np.save(self.folder / "labels.npy", np.full(BATCH * STEPS, 5, np.int64))
        self.assertIn("from 0 to 4", self.train(self.configure(RESNET), "--anew", "--set", "data.limits.labels=9", code=3))

    def test_labels_that_are_no_whole_numbers(self):
        self.write_pictures()
        np.save(self.folder / "labels.npy", np.zeros(BATCH * STEPS, np.float32))
        self.assertIn("expected scalar type Long but found Float", self.train(self.configure(RESNET), code=3))


if __name__ == "__main__":
    unittest.main()
