"""The networks of fullwatt/engine/models/ in PyTorch, with the same names of parameters."""

import torch
from torch import nn
from torch.nn import functional

MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
DEVIATION = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)


def convolution(inputs, outputs, size, stride=1):
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1, self.bn1 = convolution(inputs, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = convolution(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = convolution(width, 4 * width, 1), nn.BatchNorm2d(4 * width)
        self.downsample = None
        if stride != 1 or inputs != 4 * width:
            self.downsample = nn.Sequential(convolution(inputs, 4 * width, 1, stride), nn.BatchNorm2d(4 * width))

    def forward(self, x):
        out = functional.relu(self.bn1(self.conv1(x)))
        out = functional.relu(self.bn2(self.conv2(out)))
        return functional.relu(self.bn3(self.conv3(out)) + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """models/resnet.cpp, as torchvision.models.resnet50 has it."""

    def __init__(self, width, classes):
        super().__init__()
        self.conv1, self.bn1 = convolution(3, width, 7, 2), nn.BatchNorm2d(width)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        inputs = width
        for number, blocks in enumerate((3, 4, 6, 3)):
            own = width * 2 ** number
            strides = [1 if number == 0 else 2] + [1] * (blocks - 1)
            layer = [Bottleneck(inputs if i == 0 else 4 * own, own, stride) for i, stride in enumerate(strides)]
            setattr(self, f"layer{number + 1}", nn.Sequential(*layer))
            inputs = 4 * own
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(inputs, classes)

    def forward(self, images):
        x = self.maxpool(functional.relu(self.bn1(self.conv1((images - MEAN) / DEVIATION))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


class Attention(nn.Module):
    """Written out, where the engine calls scaled_dot_product_attention."""

    def __init__(self, embedding, heads):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(embedding, 3 * embedding), nn.Linear(embedding, embedding)
        self.heads = heads

    def forward(self, x):
        batch, length, embedding = x.shape
        query, key, value = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.c_attn(x).split(embedding, dim=2))
        scores = query @ key.transpose(2, 3) / query.shape[-1] ** 0.5
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(later, float("-inf")).softmax(-1)
        return self.c_proj((weights @ value).transpose(1, 2).reshape(x.shape))


class Mlp(nn.Module):
    def __init__(self, embedding):
        super().__init__()
        self.c_fc, self.c_proj = nn.Linear(embedding, 4 * embedding), nn.Linear(4 * embedding, embedding)

    def forward(self, x):
        return self.c_proj(functional.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, embedding, heads):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(embedding), Attention(embedding, heads)
        self.ln_2, self.mlp = nn.LayerNorm(embedding), Mlp(embedding)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt2(nn.Module):
    """models/gpt2.cpp, as Hugging Face's GPT2LMHeadModel but for the layout of the products' weights."""

    def __init__(self, vocabulary, context, heads, layers, embedding):
        super().__init__()
        blocks = nn.ModuleList(Block(embedding, heads) for _ in range(layers))
        self.transformer = nn.ModuleDict({"wte": nn.Embedding(vocabulary, embedding), "wpe": nn.Embedding(context, embedding), "h": blocks,
                                          "ln_f": nn.LayerNorm(embedding)})

    def forward(self, tokens):
        parts = self.transformer
        x = parts["wte"](tokens) + parts["wpe"](torch.arange(tokens.shape[1]))
        for block in parts["h"]:
            x = block(x)
        return parts["ln_f"](x) @ parts["wte"].weight.T
