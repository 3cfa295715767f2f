"""A training by PyTorch that `fullwatt train` is held against: train_limits.py WAY MODEL --data FOLDER --batch N [--precision fp32|bf16] [--seconds S].

`plain` is the loop as one writes it first, from disk, in float32. The others have their samples on the device already, so that nothing is left but the training itself:
`eager` by hand-tuned PyTorch, `graph` with the whole step as one CUDA graph, `compiled` with model and loss by torch.compile, `compiled_graph` with both.
Prints samples_per_second of the steady state.
"""

import argparse
import pathlib
import sys
import time

import numpy as np
import torch
import train_networks
from torch import nn
from torch.nn import functional

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "examples" / "keypoint"))
from network import KeypointNetwork, focal_loss, offset_loss  # noqa: E402

SKIPPED = 77  # as in running.py
FEW = 8  # batches that lie on the device and come again and again: together larger than any cache
AHEAD = 10  # steps that the program may be ahead of the GPU
WARM_UP = 5  # steps, and one more group of them


def skip(reason):
    print(reason)
    raise SystemExit(SKIPPED)


class Rows(torch.utils.data.Dataset):
    """A sample for each row of files that are mapped; one array for each field."""

    def __init__(self, folder, fields):
        self.files = [[np.load(path, mmap_mode="r") for path in sorted(pathlib.Path(folder).glob(f"*{field}.npy"))] for field in fields]
        if not all(self.files):
            raise FileNotFoundError(f"{folder} lacks one of {', '.join(fields)}")
        self.ends = np.cumsum([len(file) for file in self.files[0]])

    def __len__(self):
        return int(self.ends[-1])

    def __getitem__(self, index):
        file = int(np.searchsorted(self.ends, index, side="right"))
        row = index - (self.ends[file - 1] if file else 0)
        return [torch.from_numpy(np.array(arrays[file][row])) for arrays in self.files]


class Forecaster(nn.Module):
    """The network of examples/lstm/train.py, with any dropout."""

    def __init__(self, features, hidden, dropout):
        super().__init__()
        self.lstm = nn.LSTM(features, hidden, num_layers=2, batch_first=True, dropout=dropout)
        self.head = nn.Linear(hidden, features)

    def forward(self, windows):
        return self.head(self.lstm(windows)[0][:, -1])


class Lstm:
    fields, clip, lr = ("windows", "targets"), 1.0, 1e-3

    def network(self, options):
        return Forecaster(12, 64, options.dropout)

    def loss(self, network, windows, targets):
        return functional.mse_loss(network(windows).float(), targets)


class Keypoint:
    fields, clip, lr = ("images", "heatmaps", "offsets"), 0.0, 3e-4

    def network(self, options):
        return KeypointNetwork(24)

    def loss(self, network, images, heatmaps, offsets):
        predicted, moved = network((images.float() / 255).contiguous(memory_format=self.layout))
        return focal_loss(predicted.float(), heatmaps) + offset_loss(moved.float(), offsets, heatmaps)


class ResNet50:
    fields, clip, lr = ("images", "labels"), 0.0, 3e-4

    def network(self, options):
        return train_networks.resnet50(device_here())

    def loss(self, network, images, labels):
        return functional.cross_entropy(network((images.float() / 255).contiguous(memory_format=self.layout)).float(), labels)


class Gpt2:
    fields, clip, lr = ("tokens",), 0.0, 3e-4

    def network(self, options):
        return train_networks.gpt2(options.layers)

    def loss(self, network, tokens):
        return functional.cross_entropy(network(tokens[:, :-1]).flatten(0, 1).float(), tokens[:, 1:].flatten())


MODELS = {"lstm": Lstm, "keypoint": Keypoint, "resnet50": ResNet50, "gpt2": Gpt2}


def device_here():
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def apply(network, optimizer, clip):
    if clip:
        nn.utils.clip_grad_norm_(network.parameters(), clip)
    optimizer.step()


def plain(model, network, options):
    """One step for each call, from disk."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=model.lr)
    loader = torch.utils.data.DataLoader(Rows(options.data, model.fields), options.batch, shuffle=True, drop_last=True)

    def batches():
        while True:
            yield from loader

    source = batches()

    def step():
        fields = [field.to(device_here()) for field in next(source)]
        optimizer.zero_grad()
        loss = model.loss(network, *fields)
        loss.backward()
        apply(network, optimizer, model.clip)
        return loss.item()

    return step


def on_device(model, options):
    """Batches as they are stored, on the device."""
    rows = Rows(options.data, model.fields)
    count = max(1, min(FEW, len(rows) // options.batch))
    loader = torch.utils.data.DataLoader(rows, options.batch)
    return [[field.to(device_here()) for field in batch] for _, batch in zip(range(count), loader)]


def loss_of(model, network):
    return lambda *fields: model.loss(network, *fields)


def whole_step(model, network, options, forward):
    optimizer = torch.optim.AdamW(network.parameters(), lr=model.lr, fused=True, capturable=options.way.endswith("graph"))

    def step(*fields):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device_here().type, torch.bfloat16, enabled=options.precision == "bf16"):
            loss = forward(*fields)
        loss.backward()
        apply(network, optimizer, model.clip)
        return loss.detach()

    return step


def in_turn(step, batches):
    places = iter(range(1 << 62))
    return lambda: step(*batches[next(places) % len(batches)])


def eager(model, network, options):
    return in_turn(whole_step(model, network, options, loss_of(model, network)), on_device(model, options))


def compiled(model, network, options):
    return in_turn(whole_step(model, network, options, torch.compile(loss_of(model, network))), on_device(model, options))


def graph(model, network, options):
    return replayed(model, network, options, loss_of(model, network))


def compiled_graph(model, network, options):
    return replayed(model, network, options, torch.compile(loss_of(model, network)))


def replayed(model, network, options, forward):
    if not torch.cuda.is_available():
        skip("only a GPU has graphs")
    batches = on_device(model, options)
    inputs = [torch.clone(field) for field in batches[0]]
    step = whole_step(model, network, options, forward)
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(WARM_UP):
            step(*inputs)
    torch.cuda.current_stream().wait_stream(aside)
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        loss = step(*inputs)

    def replay(*fields):
        for place, field in zip(inputs, fields):
            place.copy_(field, non_blocking=True)
        recorded.replay()
        return loss

    return in_turn(replay, batches)


WAYS = {"plain": plain, "eager": eager, "graph": graph, "compiled": compiled, "compiled_graph": compiled_graph}


class Followed:
    """Waits for the group of steps before the last one, so that the GPU always has work and is never far behind."""

    def __init__(self):
        self.events = [torch.cuda.Event(), torch.cuda.Event()] if torch.cuda.is_available() else []

    def group_done(self):
        if self.events:
            self.events[0].record()
            self.events.reverse()
            self.events[0].synchronize()

    def all_done(self):
        if self.events:
            torch.cuda.synchronize()


def measured(step, seconds, group):
    """Steps of the steady state, their seconds, and the last loss."""
    followed = Followed()
    for _ in range(WARM_UP + group):
        loss = step()
    followed.all_done()
    steps, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        for _ in range(group):
            loss = step()
        steps += group
        followed.group_done()
    followed.all_done()
    return steps, time.perf_counter() - started, float(loss)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--data", required=True, help="folder with a FIELD.npy, or several, for each field of the model")
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="bf16")
    parser.add_argument("--dropout", type=float, default=0.1, help="of the LSTM")
    parser.add_argument("--layers", type=int, default=12, help="of the transformer")
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    torch.manual_seed(0)
    model = MODELS[options.model]()
    model.layout = torch.contiguous_format if options.way == "plain" else torch.channels_last
    if options.way != "plain":
        torch.backends.cudnn.benchmark = True
        torch.set_float32_matmul_precision("high")
    network = model.network(options).to(device_here(), memory_format=model.layout).train()
    step = WAYS[options.way](model, network, options)
    steps, seconds, loss = measured(step, options.seconds, AHEAD if torch.cuda.is_available() else 1)
    print(f"steps={steps} loss={loss:.4f} seconds={seconds:.2f} samples_per_second={steps * options.batch / seconds:.1f}")


if __name__ == "__main__":
    main()
