"""Pictures that are changed at random on the device: the engine's losses against PyTorch with pictures changed one by one, from the same random numbers."""

import shutil
import unittest

import numpy as np
import torch
from references import DEVIATION, MEAN, ResNet
from support import EngineCase, read_safetensors
from torch.nn.functional import cross_entropy

BATCH = 8
RESNET = "{name: resnet50, width: 8, classes: 5}"
KEYPOINT = "{name: keypoint, channels: 8}"
ALL = {"augment_flip": 0.5, "augment_shift": 3, "augment_brightness": "[0.6, 1.4]", "augment_contrast": "[0.5, 1.5]", "augment_noise": 0.1}


def moved(picture, down, right, is_flipped, most, padding):
    """By NumPy, from a picture that was made larger on all sides."""
    if is_flipped:
        picture = picture[:, :, ::-1]
    larger = np.pad(picture, ((0, 0), (most, most), (most, most)), "reflect" if padding == "reflection" else "constant")
    height, width = picture.shape[1:]
    return larger[:, most + down:most + down + height, most + right:most + right + width]


def augmented(images, flip=0.0, shift=0, padding="reflection", brightness=None, contrast=None, noise=0.0):
    """Random numbers are drawn in the engine's order, for all pictures at once; what is done with them is not the engine's way."""
    count = len(images)
    down, right = (torch.randint(-shift, shift + 1, (count,)).tolist() if shift else [0] * count for _ in range(2))
    is_flipped = (torch.rand(count) < flip).tolist() if flip else [False] * count
    made = np.stack([moved(*each, shift, padding) for each in zip(images, down, right, is_flipped)])
    limit = images.dtype == np.uint8
    x = torch.from_numpy(made.astype(np.float32)) / (255 if limit else 1)
    factors = torch.rand(count).tolist() if brightness else []
    for i, drawn in enumerate(factors):
        x[i] *= brightness[0] + drawn * (brightness[1] - brightness[0])
    x = x.clamp(0, 1) if limit else x
    factors = torch.rand(count).tolist() if contrast else []
    for i, drawn in enumerate(factors):
        x[i] = x[i].mean() + (x[i] - x[i].mean()) * (contrast[0] + drawn * (contrast[1] - contrast[0]))
    x = x.clamp(0, 1) if limit else x
    if noise:
        x = x + noise * torch.randn(x.shape)
    return x.clamp(0, 1) if limit else x


class AugmentCase(EngineCase):
    def write_pictures(self, dtype=np.uint8):
        """And what every model with pictures has to learn of them."""
        random = np.random.default_rng(3)
        images = random.integers(0, 256, (4 * BATCH, 3, 32, 64), dtype=np.uint8)
        images = images if dtype == np.uint8 else (images / 64 - 2).astype(dtype)
        labels = random.integers(0, 5, len(images))
        heatmaps = random.random((len(images), 2, 8, 16), dtype=np.float32)
        for name, array in (("images", images), ("labels", labels), ("heatmaps", heatmaps), ("offsets", random.random((len(images), 4, 8, 16), dtype=np.float32))):
            np.save(self.folder / f"{name}.npy", array)
        return images, torch.from_numpy(labels)

    def losses_of(self, model=RESNET, **settings):
        shutil.rmtree(self.folder / "out", ignore_errors=True)
        self.train(self.configure(model, **settings))
        return self.losses()


class AugmentTest(AugmentCase):
    def compare(self, normalised=lambda x: x, dtype=np.uint8, engine=None, **options):
        """A second epoch of weights that stay as they are, from the random numbers that are left after the first."""
        images, labels = self.write_pictures(dtype)
        told = {f"augment_{name}": str(list(value)) if isinstance(value, tuple) else value for name, value in options.items()}
        settings = {"optimizer_lr": 0, **(engine or {}), **told}
        self.assertEqual(len(self.losses_of(**settings)), 4)
        state, _ = read_safetensors(self.newest())
        self.train(self.configure(RESNET, train_epochs=2, **settings))
        model = ResNet(8, 5)
        model.load_state_dict({name: state[name] for name in model.state_dict()})
        torch.set_rng_state(state["random.cpu"])
        expected = []
        for first in range(0, len(images), BATCH):
            scores = model(normalised(augmented(images[first:first + BATCH], **options)))
            expected.append(cross_entropy(scores, labels[first:first + BATCH]).item())
        np.testing.assert_allclose(self.losses()[4:], expected, rtol=1e-4)

    def test_what_is_drawn_and_what_is_made_of_it(self):
        """Each change by itself is in engine_augment_test.cpp."""
        moves, colours = {"flip": 0.5, "shift": 3}, {"brightness": (0.6, 1.4), "contrast": (0.5, 1.5), "noise": 0.1}
        for options in (moves, colours, {**moves, **colours, "padding": "zeros"}):
            with self.subTest(**options):
                self.compare(**options)

    def test_pictures_of_fractions_are_not_limited(self):
        self.compare(dtype=np.float32, brightness=(0.6, 3), contrast=(0.5, 1.5), noise=0.1, shift=2)

    def test_channels_are_normalised_as_configured(self):
        mean, deviation = torch.tensor([0.1, 0.5, 0.9]).view(3, 1, 1), torch.tensor([0.5, 1, 2]).view(3, 1, 1)
        engine = {"data_mean": "[0.1, 0.5, 0.9]", "data_std": "[0.5, 1, 2]", "train_channels_last": "false"}
        self.compare(lambda x: (x - mean) / deviation * DEVIATION + MEAN, engine=engine, flip=0.5)

    def test_a_training_that_was_interrupted_goes_on_to_the_same_losses(self):
        self.write_pictures()
        settings = {**ALL, "data_shuffle": "true"}
        whole = self.losses_of(train_epochs=3, **settings)
        tensors, _ = read_safetensors(self.newest())
        self.losses_of(train_epochs=1, **settings)
        self.train(self.configure(RESNET, train_epochs=3, **settings))
        self.assertEqual(self.losses(), whole)
        for name, tensor in read_safetensors(self.newest())[0].items():
            self.assertTrue(torch.equal(tensor, tensors[name]), name)
        self.assertNotEqual(self.losses_of(train_epochs=3, **settings, train_seed=1), whole)

    def test_targets_that_are_places_let_colours_change(self):
        self.write_pictures()
        plain = self.losses_of(KEYPOINT)
        for setting in ("brightness", "contrast", "noise"):
            name = f"augment_{setting}"
            self.assertNotEqual(self.losses_of(KEYPOINT, **{name: ALL[name]}), plain)

    def test_the_model_s_own_normalisation_is_told(self):
        self.write_pictures()
        told = self.train(self.configure(RESNET))
        self.assertRegex(told, r"\* data.mean +none +0.485, 0.456, 0.406 \(the model's own\)")
        self.assertRegex(self.train(self.configure(KEYPOINT), "--anew"), r"  data.mean +none +none")


class WrongSettingsTest(AugmentCase):
    def test_what_is_wrong_is_named_with_its_line(self):
        self.write_pictures()
        path = self.configure(RESNET)
        line = len(path.read_text().splitlines()) + 2
        for setting, reason in (("flip: 2", "augment.flip: it must be a number from 0 to 1, not '2'"),
                                ("shift: 1.5", "augment.shift: it must be a whole number from 0 to 16383, not '1.5'"),
                                ("padding: mirror", "augment.padding: it must be one of reflection, zeros, not 'mirror'"),
                                ("brightness: 0.2", "augment.brightness: it must be two factors, such as [0.8, 1.2], not '0.2'"),
                                ("contrast: [2, 1]", "augment.contrast: the smaller factor must come first, not '2,1'"),
                                ("noise: -1", "augment.noise: it must be a number from 0 to 1e+06, not '-1'")):
            path.write_text("\n".join(path.read_text().splitlines()[:line - 2]) + f"\naugment:\n  {setting}\n")
            self.assertIn(f"line {line}, {reason}", self.train(path, code=2))
        self.assertIn("line 2: data.mean has 1 numbers and data.std 0", self.train(self.configure(RESNET, data_mean="[0.5]"), code=2))

    def test_what_does_not_fit_the_model_or_the_pictures(self):
        self.write_pictures()
        for setting in ({"augment_flip": 0.5}, {"augment_shift": 1}):
            told = self.train(self.configure(KEYPOINT, **setting), code=3)
            self.assertIn("would move the pictures of the model keypoint, and not the places in them", told)
            self.assertIn("brightness, contrast and noise are possible", told)
        told = self.train(self.configure(RESNET, augment_shift=32), code=3)
        self.assertIn("augment.shift: 32 is not smaller than the pictures, which have 32 pixels", told)
        told = self.train(self.configure(RESNET, data_mean="[0.5]", data_std="[0.5]"), code=3)
        self.assertIn("data.mean and data.std have 1 numbers, and the pictures 3 channels", told)
        self.write_windows(16)
        for setting in ({"augment_noise": 0.5}, {"data_mean": "[0.5]", "data_std": "[0.5]"}):
            self.assertIn("are for pictures, and the model lstm has none", self.train(self.configure(**setting), code=3))


@unittest.skipUnless(torch.cuda.is_available(), "no GPU")
class GpuAugmentTest(AugmentCase):
    device = "cuda"

    def test_a_graph_draws_what_steps_without_one_draw(self):
        self.write_pictures()
        settings = {**ALL, "train_epochs": 3, "hardware_deterministic": "true"}
        graphs = self.losses_of(**settings)
        self.assertEqual(len(set(graphs)), len(graphs))
        self.assertEqual(self.losses_of(**settings), graphs)
        np.testing.assert_allclose(self.losses_of(train_compile_mode="max-autotune-no-cudagraphs", **settings), graphs, rtol=1e-3)
        self.losses_of(**{**settings, "train_epochs": 1})
        self.train(self.configure(RESNET, **settings))
        self.assertEqual(self.losses(), graphs)


if __name__ == "__main__":
    unittest.main()
