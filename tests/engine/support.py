"""Data, weights and programs for the tests of fullwatt-train."""

import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib

import numpy as np
import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "examples" / "keypoint"))
PROGRAM = os.environ["FULLWATT_TRAIN"]
DTYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.float64: "F64", torch.int64: "I64"}


class Forecaster(torch.nn.Module):
    """The network of fullwatt/engine/models/lstm.cpp."""

    def __init__(self, features=12, hidden=16, layers=2):
        super().__init__()
        self.lstm = torch.nn.LSTM(features, hidden, num_layers=layers, batch_first=True)
        self.head = torch.nn.Linear(hidden, features)

    def forward(self, windows):
        return self.head(self.lstm(windows)[0][:, -1])


def write_safetensors(path, tensors):
    """By the format's description, not by our own code."""
    header, data = {}, b""
    for name, tensor in tensors.items():
        raw = bytes(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy())
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)


def checked_header(header, metadata):
    """The header as the checksum sees it: without itself."""
    rest = {name: value for name, value in metadata.items() if name != "crc32"}
    return json.dumps({**header, "__metadata__": rest}, sort_keys=True, separators=(",", ":")).encode()


def read_safetensors(path):
    """Tensors and metadata; refuses what does not fit its checksum, as the engine does."""
    raw = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + length])
    metadata, data = header.pop("__metadata__", {}), raw[8 + length:]
    if "crc32" in metadata and int(metadata["crc32"], 16) != zlib.crc32(data, zlib.crc32(checked_header(header, metadata))):
        raise ValueError(f"{path} does not fit its checksum")
    types = {"F32": np.float32, "I64": np.int64, "U8": np.uint8, "I32": np.int32}
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors[name] = torch.from_numpy(np.frombuffer(data[begin:end], types[entry["dtype"]]).reshape(entry["shape"]).copy())
    return tensors, metadata


class EngineCase(unittest.TestCase):
    device = "cpu"

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        torch.manual_seed(0)
        torch.set_num_threads(1)

    def write_windows(self, samples=64, length=10, features=12, scale=1):
        random = np.random.default_rng(1)
        windows = random.normal(size=(samples, length, features)).astype(np.float32)
        targets = (scale * random.normal(size=(samples, features))).astype(np.float32)
        np.save(self.folder / "windows.npy", windows)
        np.save(self.folder / "targets.npy", targets)
        return torch.from_numpy(windows), torch.from_numpy(targets)

    def configure(self, model="{name: lstm, hidden: 16}", **settings):
        """A configuration that trains on the case's device in the order of the data; `settings` are such as train_epochs."""
        sections = {"data": {"folder": str(self.folder), "shuffle": "false"}, "hardware": {"device": self.device, "allow_tf32": "false"}, "output": {"folder": str(self.folder / "out")},
                    "train": {"batch_size": 8, "log_every": 1, "amp": "false"}}
        for name, value in settings.items():
            section, key = name.split("_", 1)
            sections.setdefault(section, {})[key] = value
        lines = [f"model: {model}"] + [f"{section}: {{{', '.join(f'{key}: {value}' for key, value in entries.items())}}}" for section, entries in sections.items()]
        path = self.folder / "config.yaml"
        path.write_text("\n".join(lines) + "\n")
        return path

    def start(self, *arguments, **environment):
        return subprocess.Popen([PROGRAM, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env={**os.environ, "OMP_NUM_THREADS": "1", **environment})

    def train(self, *arguments, code=0, **environment):
        process = self.start(*arguments, **environment)
        out, err = process.communicate(timeout=300)
        self.assertEqual(process.returncode, code, err)
        return out + err

    def losses(self):
        return [json.loads(line)["loss"] for line in (self.folder / "out" / "metrics.jsonl").read_text().splitlines()]

    def newest(self):
        return sorted((self.folder / "out").glob("step-*.safetensors"))[-1]
