"""The engine against PyTorch: the same first weights and data, the same losses and weights after."""

import unittest

import numpy as np
import torch
from support import EngineCase, Forecaster, read_safetensors, write_safetensors


def trained_by_torch(model, loss_of, batches, accumulation=1, clip=0.0, decay=0.01):
    """The losses of each step, by AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=decay)
    losses, parts = [], []
    for number, batch in enumerate(batches, 1):
        loss = loss_of(model, batch)
        (loss / accumulation).backward()
        parts.append(loss.item())
        if number % accumulation:
            continue
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(sum(parts) / len(parts))
        parts = []
    return losses


def forecast_loss(model, batch):
    windows, targets = batch
    return torch.nn.functional.mse_loss(model(windows), targets)


class OracleTest(EngineCase):
    def assert_same(self, model, losses):
        np.testing.assert_allclose(self.losses(), losses, rtol=2e-6)
        stored, _ = read_safetensors(self.newest())
        for name, tensor in model.state_dict().items():
            np.testing.assert_allclose(stored[name].numpy(), tensor.detach().numpy(), rtol=2e-5, atol=2e-6, err_msg=name)

    def compare_lstm(self, accumulation=1, clip=0.0, **settings):
        windows, targets = self.write_windows(160)
        model = Forecaster()
        write_safetensors(self.folder / "first.safetensors", model.state_dict())
        self.train(self.configure(train_gradient_accumulation_steps=accumulation, train_clip=clip, **settings), "--initial", self.folder / "first.safetensors")
        batches = [(windows[i:i + 8], targets[i:i + 8]) for i in range(0, 160, 8)]
        self.assert_same(model, trained_by_torch(model, forecast_loss, batches, accumulation, clip))

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
            predicted, moved = net(torch.from_numpy(images[part]).float() / 255)
            target = torch.from_numpy(heatmaps[part])
            return focal_loss(predicted, target) + offset_loss(moved, torch.from_numpy(offsets[part]), target)

        losses = trained_by_torch(model, loss_of, [slice(0, 4), slice(4, 8)] * 3)
        np.testing.assert_allclose(self.losses(), losses, rtol=1e-4)

    def test_bfloat16_stays_near(self):
        windows, targets = self.write_windows(160)
        model = Forecaster()
        write_safetensors(self.folder / "first.safetensors", model.state_dict())
        self.train(self.configure(train_amp="bf16"), "--initial", self.folder / "first.safetensors")
        losses = trained_by_torch(model, forecast_loss, [(windows[i:i + 8], targets[i:i + 8]) for i in range(0, 160, 8)])
        self.assertNotEqual(self.losses(), losses)
        np.testing.assert_allclose(self.losses(), losses, rtol=2 ** -8 * 4, err_msg="bfloat16 has 8 bits; errors of a few products add up")


if __name__ == "__main__":
    unittest.main()
