"""A training of one of three families, for as long as it is let run: memory_models.py cnn|transformer|lstm [--small] [--card GB]. `tune.py` looks for its batch size."""

import argparse

import torch
from torch import nn

SAMPLES, CLASSES, FIRST_BATCH = 8192, 64, 8


def cnn(small):
    width, side = (8, 32) if small else (96, 128)
    layers = []
    for before, after in ((3, width), (width, 2 * width), (2 * width, 4 * width)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, CLASSES))
    return model, (3, side, side)


class Transformer(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        block = nn.TransformerEncoderLayer(width, width // 64 or 1, 4 * width, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, tokens):
        return self.head(self.blocks(tokens).mean(1))


def transformer(small):
    width, layers, length = (32, 2, 16) if small else (768, 8, 256)
    return Transformer(width, layers), (length, width)


class Lstm(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.lstm = nn.LSTM(features, hidden, num_layers=2, batch_first=True)
        self.head = nn.Linear(hidden, CLASSES)

    def forward(self, series):
        return self.head(self.lstm(series)[0][:, -1])


def lstm(small):
    length, hidden = (16, 16) if small else (256, 1024)
    return Lstm(32, hidden), (length, 32)


class Noise(torch.utils.data.Dataset):
    """Samples of one shape; a few that come again and again, so that loading takes no part."""

    def __init__(self, shape):
        self._few = torch.randn(64, *shape)

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return self._few[index % len(self._few)], index % CLASSES


def main():
    families = {"cnn": cnn, "transformer": transformer, "lstm": lstm}
    parser = argparse.ArgumentParser()
    parser.add_argument("family", choices=families)
    parser.add_argument("--small", action="store_true", help="for a CPU")
    parser.add_argument("--card", type=float, help="takes no more memory than a card of so many GB has")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if options.card and device == "cuda":
        torch.cuda.set_per_process_memory_fraction(min(1.0, options.card * 2**30 / torch.cuda.get_device_properties(0).total_memory))
    torch.manual_seed(0)
    model, shape = families[options.family](options.small)
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    loader = torch.utils.data.DataLoader(Noise(shape), batch_size=FIRST_BATCH, shuffle=True, drop_last=True)
    while True:
        for inputs, labels in loader:
            loss = nn.functional.cross_entropy(model(inputs.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
