"""A workload in this process, with somebody told of each step's end: turns.py and relay.py measure so.

`shortest` is a training of very short steps, the others are those of tests/workloads.
"""

import runpy
import sys
import time

import torch
import truth

sys.path.insert(0, str(truth.WORKLOADS))
import common  # noqa: E402

drained_ns = common.drained_ns


def device():
    return "cuda" if torch.cuda.is_available() else "cpu"


def train(name, seconds, step_ended):
    if name == "shortest":
        train_shortest(seconds, step_ended)
    else:
        train_workload(name, seconds, step_ended)


def train_shortest(seconds, step_ended):
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)).to(device())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = torch.utils.data.TensorDataset(torch.randn(1_000_000, 16))
    end = time.monotonic() + seconds
    for (inputs,) in torch.utils.data.DataLoader(data, batch_size=1):
        optimizer.zero_grad()
        model(inputs.to(device())).sum().backward()
        optimizer.step()
        step_ended()
        if time.monotonic() > end:
            break


def train_workload(name, seconds, step_ended):
    step = common.Meter.step

    def step_and_tell(meter, samples):
        step_ended()
        return step(meter, samples)

    common.Meter.step = step_and_tell
    sys.argv = [str(truth.script(name)), "--seconds", str(seconds)]
    runpy.run_path(sys.argv[0], run_name="__main__")
