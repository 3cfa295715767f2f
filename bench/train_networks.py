"""ResNet-50 and GPT-2 as torchvision and transformers have them or, where those are not installed, as tests/engine/references.py does, which the engine's are tested against."""

import importlib.util
import pathlib
import sys

import torch
from torch import nn
from torch.nn import functional

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "engine"))
import references  # noqa: E402

VOCABULARY, CONTEXT, HEADS, EMBEDDING = 50257, 1024, 12, 768  # as the smallest GPT-2 has them


def is_installed(library):
    """Says so where it is not; train_runs.py takes it as a note."""
    if importlib.util.find_spec(library):
        return True
    print(f"note: {library} is not installed: the network of tests/engine/references.py")
    return False


class Normalised(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", references.MEAN)
        self.register_buffer("deviation", references.DEVIATION)

    def forward(self, images):
        return (images - self.mean) / self.deviation


def resnet50(device):
    """Takes pictures from 0 to 1."""
    if is_installed("torchvision"):
        import torchvision

        return nn.Sequential(Normalised(), torchvision.models.resnet50())
    references.MEAN, references.DEVIATION = references.MEAN.to(device), references.DEVIATION.to(device)
    return references.ResNet(64, 1000)


class Attention(references.Attention):
    """As fast as libraries have it."""

    def forward(self, x):
        parts = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.c_attn(x).chunk(3, dim=2))
        return self.c_proj(functional.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2).flatten(2))


class Gpt2(references.Gpt2):
    """Its positions lie where its tokens do."""

    def forward(self, tokens):
        parts = self.transformer
        x = parts["wte"](tokens) + parts["wpe"](torch.arange(tokens.shape[1], device=tokens.device))
        for block in parts["h"]:
            x = block(x)
        return parts["ln_f"](x) @ parts["wte"].weight.T


class Scores(nn.Module):
    """Of a model of transformers, whose answer holds more."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return self.model(tokens).logits


def gpt2(layers):
    """Without dropout."""
    if is_installed("transformers"):
        import transformers

        return Scores(transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=layers, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, use_cache=False)))
    references.Attention = Attention
    return Gpt2(VOCABULARY, CONTEXT, HEADS, layers, EMBEDDING)
