"""The Trainer of Hugging Face, with a collator that pads token by token."""

import tempfile

import torch
from torch import nn

from common import Meter, need

transformers = need("transformers")
need("accelerate")
WORDS, LENGTH = 4096, 128


def collate(sentences):  # planted
    tokens = torch.zeros(len(sentences), LENGTH, dtype=torch.long)
    for row, sentence in enumerate(sentences):
        for column, token in enumerate(sentence):
            tokens[row, column] = token
    return {"tokens": tokens, "labels": tokens}


class Language(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, width)
        self.layers = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.head = nn.Linear(width, WORDS)

    def forward(self, tokens, labels):
        logits = self.head(self.layers(self.embedding(tokens)))
        return {"loss": nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}


class Watch(transformers.TrainerCallback):
    def __init__(self, meter):
        self.meter, self.batch = meter, meter.pick(64, 16)

    def on_step_end(self, args, state, control, **_):
        control.should_training_stop = not self.meter.step(self.batch)
        return control


def main(folder):
    meter = Meter()
    torch.set_float32_matmul_precision("high")
    watch = Watch(meter)
    sentences = [[(row * 31 + column) % WORDS for column in range(LENGTH)] for row in range(512)] * 200
    arguments = transformers.TrainingArguments(
        folder, per_device_train_batch_size=watch.batch, dataloader_num_workers=meter.pick(2, 1), max_steps=100_000, max_grad_norm=0.0,
        bf16=meter.device == "cuda", use_cpu=meter.device == "cpu", optim=meter.pick("adamw_torch_fused", "adamw_torch"), disable_tqdm=True,
        logging_strategy="no", logging_nan_inf_filter=False, save_strategy="no", report_to=[], remove_unused_columns=False)
    trainer = transformers.Trainer(Language(meter.pick(512, 16)), arguments, train_dataset=sentences, data_collator=collate, callbacks=[watch])  # planted
    trainer.train()  # planted
    meter.finish()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(scratch)
