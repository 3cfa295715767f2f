"""Lightning, with a loader that decodes in the training process."""

import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from common import Meter, need

lightning = need("pytorch_lightning")


class Photos(Dataset):
    def __init__(self):
        picture = np.random.default_rng(0).integers(0, 16, (3, 224, 224), dtype=np.uint8)
        self.file = zlib.compress(picture.tobytes(), 1)

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        pixels = np.frombuffer(zlib.decompress(self.file), np.uint8).reshape(3, 224, 224)
        return torch.from_numpy(pixels[:, ::2, ::2].astype(np.float32)), index % 16


class Classifier(lightning.LightningModule):
    def __init__(self, meter):
        super().__init__()
        self.meter = meter
        self.layers = nn.Sequential(nn.Conv2d(3, 64, 3, stride=2, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                                    nn.Linear(64, 16)).to(memory_format=torch.channels_last)

    def forward(self, images):
        return self.layers(images.to(memory_format=torch.channels_last))

    def training_step(self, batch, _):
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3, fused=self.device.type == "cuda")

    def on_train_batch_start(self, batch, _):
        self.meter.data()

    def on_train_batch_end(self, outputs, batch, _):
        self.trainer.should_stop = not self.meter.step(len(batch[1]))


def main():
    meter = Meter()
    torch.backends.cudnn.benchmark = True
    loader = DataLoader(Photos(), batch_size=meter.pick(128, 16), num_workers=0, pin_memory=meter.device == "cuda")  # planted
    trainer = lightning.Trainer(accelerator=meter.pick("gpu", "cpu"), devices=1, precision=meter.pick("bf16-mixed", "32-true"), max_epochs=1, logger=False,
                                enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0)
    trainer.fit(Classifier(meter), loader)
    meter.finish()


if __name__ == "__main__":
    main()
