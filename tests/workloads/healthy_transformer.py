"""Healthy: a language model in bfloat16 with flash attention, a fused optimiser and a loader that keeps ahead."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from common import Meter


class Tokens(Dataset):
    def __init__(self, words, length):
        self.stream, self.length = torch.randint(words, (1 << 20,)), length

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        start = index * 7919 % (len(self.stream) - self.length - 1)
        return self.stream[start:start + self.length + 1]


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.heads = width // 64
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attention = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attention.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


def main():
    meter = Meter()
    device = meter.device
    torch.set_float32_matmul_precision("high")
    words, width, length, batch = meter.pick(8192, 256), meter.pick(2048, 64), meter.pick(1024, 64), meter.pick(16, 4)
    loader = DataLoader(Tokens(words, length), batch, num_workers=meter.pick(4, 1), pin_memory=device == "cuda", persistent_workers=True)
    model = nn.Sequential(nn.Embedding(words, width), *[Block(width) for _ in range(meter.pick(4, 2))], nn.LayerNorm(width), nn.Linear(width, words))
    model = model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")

    def train_step(tokens):
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for tokens in loader:
        tokens = tokens.to(device, non_blocking=True)
        loss = train_step(tokens)
        if not meter.step(len(tokens)):
            break
    meter.finish(loss, lambda: train_step(tokens))


if __name__ == "__main__":
    main()
