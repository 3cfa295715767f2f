"""Healthy: Lightning in bfloat16 with a pinned loader that keeps ahead."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from common import Meter, need

lightning = need("pytorch_lightning")


class Batches(Dataset):
    """Whole batches, ready to be sent."""

    def __init__(self, batch, width):
        self.features, self.labels = torch.randn(4 * batch, width, dtype=torch.float16), torch.randint(64, (4 * batch,))
        self.batch = batch

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        start = index % 4 * self.batch
        return self.features[start:start + self.batch].clone(), self.labels[start:start + self.batch].clone()


class Classifier(lightning.LightningModule):
    def __init__(self, meter, width):
        super().__init__()
        self.meter = meter
        self.layers = nn.Sequential(nn.Linear(256, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 64))

    def training_step(self, batch, _):
        return nn.functional.cross_entropy(self.layers(batch[0].float()), batch[1])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-4, fused=self.device.type == "cuda")

    def on_train_batch_end(self, outputs, batch, _):
        self.trainer.should_stop = not self.meter.step(len(batch[1]))


def main():
    meter = Meter()
    torch.set_float32_matmul_precision("high")
    batches = Batches(meter.pick(16384, 128), 256)
    loader = DataLoader(batches, batch_size=None, num_workers=meter.pick(4, 1), pin_memory=meter.device == "cuda", persistent_workers=True)
    trainer = lightning.Trainer(accelerator=meter.pick("gpu", "cpu"), devices=1, precision=meter.pick("bf16-mixed", "32-true"), max_epochs=1, logger=False,
                                enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Classifier(meter, meter.pick(4096, 256)), loader)
    meter.finish()


if __name__ == "__main__":
    main()
