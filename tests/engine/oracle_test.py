"""The engine against PyTorch: the same first weights and data, the same losses and weights after."""

import shutil
import unittest

import numpy as np
import torch
from support import EngineCase, Forecaster, read_safetensors, write_safetensors


def trained_by_torch(model, loss_of, batches, accumulation=1, clip=0.0, make=torch.optim.AdamW, dtype=None, **options):
    """The losses of each step, by AdamW or another optimiser; with a `dtype` under autocast, and for half precision with PyTorch's own scaler."""
    device = next(model.parameters()).device.type
    optimizer = make(model.parameters(), **{"lr": 3e-4, "weight_decay": 0.01, "fused": device == "cuda", **options})
    scaler = torch.amp.GradScaler(device, enabled=dtype == torch.float16)
    losses, parts = [], []
    for number, batch in enumerate(batches, 1):
        with torch.autocast(device, dtype, enabled=dtype is not None):
            loss = loss_of(model, batch)
        scaler.scale(loss / accumulation).backward()
        parts.append(loss.item())
        if number % accumulation:
            continue
        if clip:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        losses.append(sum(parts) / len(parts))
        parts = []
    return losses


def forecast_loss(model, batch):
    windows, targets = (tensor.to(model.head.weight.device) for tensor in batch)
    return torch.nn.functional.mse_loss(model(windows), targets)


class OracleTest(EngineCase):
    def assert_same(self, model, losses):
        np.testing.assert_allclose(self.losses(), losses, rtol=2e-6)
        stored, _ = read_safetensors(self.newest())
        for name, tensor in model.state_dict().items():
            np.testing.assert_allclose(stored[name].numpy(), tensor.cpu().numpy(), rtol=2e-5, atol=2e-6, err_msg=name)

    def compare_lstm(self, accumulation=1, clip=0.0, by_torch=None, **settings):
        windows, targets = self.write_windows(160)
        model = Forecaster()
        write_safetensors(self.folder / "first.safetensors", model.state_dict())
        self.train(self.configure(train_gradient_accumulation_steps=accumulation, train_clip=clip, **settings), "--initial", self.folder / "first.safetensors")
        batches = [(windows[i:i + 8], targets[i:i + 8]) for i in range(0, 160, 8)]
        self.assert_same(model, trained_by_torch(model.to(self.device), forecast_loss, batches, accumulation, clip, **(by_torch or {})))

    def test_twenty_steps_of_the_lstm(self):
        self.compare_lstm()

    def test_clipped_and_accumulated(self):
        self.compare_lstm(accumulation=4, clip=0.05)

    def test_the_keypoint_network(self):
        from network import KeypointNetwork, focal_loss, offset_loss

        random = np.random.default_rng(2)
        images = random.integers(0, 256, (8, 3, 32, 64), dtype=np.uint8)
        heatmaps = random.random((8, 2, 8, 16), dtype=np.float32) * 0.9
        heatmaps[:, :, 3, 5] = 1
        offsets = random.random((8, 4, 8, 16), dtype=np.float32)
        for name, array in (("images", images), ("heatmaps", heatmaps), ("offsets", offsets)):
            for half in range(2):
                np.save(self.folder / f"batch{half}_{name}.npy", array[4 * half:4 * half + 4])
        model = KeypointNetwork(8)
        write_safetensors(self.folder / "first.safetensors", model.state_dict())
        self.train(self.configure("{name: keypoint, channels: 8}", train_batch_size=4, train_epochs=3, train_channels_last="false"), "--initial", self.folder / "first.safetensors")

        def loss_of(net, part):
            image, target, offset = (torch.from_numpy(array[part]).to(self.device) for array in (images, heatmaps, offsets))
            predicted, moved = net(image.float() / 255)
            return focal_loss(predicted, target) + offset_loss(moved, offset, target)

        losses = trained_by_torch(model.to(self.device), loss_of, [slice(0, 4), slice(4, 8)] * 3)
        np.testing.assert_allclose(self.losses(), losses, rtol=1e-4)

    def test_momentum(self):
        for nesterov in (False, True):
            self.compare_lstm(by_torch={"make": torch.optim.SGD, "lr": 0.05, "momentum": 0.8, "nesterov": nesterov, "weight_decay": 0.01},
                              optimizer_name="sgd", optimizer_lr=0.05, optimizer_momentum=0.8, optimizer_nesterov=str(nesterov).lower())
            shutil.rmtree(self.folder / "out")

    def test_short_types_are_pytorchs_own(self):
        """The same kernels and the same scaler: as near as in float32."""
        for name, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
            self.disable_onednn(dtype)
            self.compare_lstm(by_torch={"dtype": dtype}, train_amp=name)
            shutil.rmtree(self.folder / "out")
            self.compare_lstm(accumulation=4, clip=0.05, by_torch={"dtype": dtype}, train_amp=name)
            shutil.rmtree(self.folder / "out")

    def disable_onednn(self, dtype):
        """As the engine does: oneDNN has no LSTM in half precision for every CPU."""
        torch.backends.mkldnn.enabled = dtype != torch.float16
        self.addCleanup(setattr, torch.backends.mkldnn, "enabled", True)

    def test_steps_that_overflow_are_left_out(self):
        """Half precision ends at 65504: the first factors of the loss are too large for gradients of this size."""
        self.disable_onednn(torch.float16)
        windows, targets = self.write_windows(160, scale=300)
        model = Forecaster()
        write_safetensors(self.folder / "first.safetensors", model.state_dict())
        self.train(self.configure(train_amp="fp16"), "--initial", self.folder / "first.safetensors")
        trained_by_torch(model.to(self.device), forecast_loss, [(windows[i:i + 8], targets[i:i + 8]) for i in range(0, 160, 8)], dtype=torch.float16)
        stored, _ = read_safetensors(self.newest())
        self.assertLess(stored["scaler.scale"].item(), 65536)
        for name, tensor in model.state_dict().items():
            np.testing.assert_allclose(stored[name].numpy(), tensor.cpu().numpy(), rtol=2e-5, atol=2e-6, err_msg=name)

    def test_samples_that_are_kept_on_the_device_are_the_same(self):
        self.write_windows(160)
        settings = {"data_shuffle": "true", "train_epochs": 2}
        self.train(self.configure(**settings))
        losses = self.losses()
        self.assertIn("data.device_cache_gb", self.train(self.configure(**settings, data_device_cache_gb=0.00001), "--anew"))
        told = self.train(self.configure(**settings, data_device_cache_gb=1), "--anew")
        self.assertNotIn("the samples are larger", told)
        self.assertEqual(self.losses(), losses)
        told = self.train(self.configure(**settings, data_device_cache_gb="auto"), "--anew")
        self.assertRegex(told, r"\* data.device_cache_gb +auto +0 \(there is no GPU to keep them on\)" if self.device == "cpu" else r"\* data.device_cache_gb +auto +all samples")
        self.assertEqual(self.losses(), losses)

    def test_bfloat16_stays_near(self):
        windows, targets = self.write_windows(160)
        model = Forecaster()
        write_safetensors(self.folder / "first.safetensors", model.state_dict())
        self.train(self.configure(train_amp="bf16"), "--initial", self.folder / "first.safetensors")
        losses = trained_by_torch(model.to(self.device), forecast_loss, [(windows[i:i + 8], targets[i:i + 8]) for i in range(0, 160, 8)])
        self.assertNotEqual(self.losses(), losses)
        np.testing.assert_allclose(self.losses(), losses, rtol=2 ** -8 * 4, err_msg="bfloat16 has 8 bits; errors of a few products add up")


if __name__ == "__main__":
    unittest.main()
