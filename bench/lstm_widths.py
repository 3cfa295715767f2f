"""An LSTM's step as a CUDA graph, in bfloat16 beside float32, by width: where `train.amp: true` had better stay with float32 (fullwatt/engine/recurrent.cpp).

Usage: lstm_widths.py FULLWATT [--commit ID] on a machine with a GPU. Two layers over 60 moments of 12 features, with dropout and AdamW.
"""

import argparse
import pathlib
import time

import running
import torch

RESULTS = pathlib.Path(__file__).resolve().parent / "results"
BATCHES, WIDTHS = (32, 128, 512), (32, 64, 128, 256, 512, 1024)
WARM_UP, STEPS, ROUNDS = 10, 30, 5


class Network(torch.nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.lstm = torch.nn.LSTM(12, hidden, 2, batch_first=True, dropout=0.1)
        self.out = torch.nn.Linear(hidden, 1)

    def forward(self, x):
        return self.out(self.lstm(x)[0][:, -1])


def graph_of(step):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(5):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph


def step_ms(hidden, batch, is_bf16):
    """Of the fastest round."""
    network = Network(hidden).cuda()
    optimizer = torch.optim.AdamW(network.parameters(), 1e-3, fused=True, capturable=True)
    x, y = torch.randn(batch, 60, 12, device="cuda"), torch.randn(batch, 1, device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, enabled=is_bf16):
            loss = torch.nn.functional.mse_loss(network(x).float(), y)
        loss.backward()
        optimizer.step()

    graph = graph_of(step)
    rounds = []
    for steps in (WARM_UP, *[STEPS] * ROUNDS):
        start = time.perf_counter()
        for _ in range(steps):
            graph.replay()
        torch.cuda.synchronize()
        rounds.append((time.perf_counter() - start) / steps * 1e3)
    return min(rounds[1:])


def table(found, head):
    lines = ["# An LSTM's step in bfloat16 beside float32", "", head, "",
             "Made by `bench/lstm_widths.py`. Two layers over 60 moments of 12 features, each step a CUDA graph; float32 may use TF32. Below 1 float32 is faster.", "",
             "| batch | hidden | float32, ms | bfloat16, ms | times as fast in bfloat16 |", "|---|---|---|---|---|"]  # fmt: skip
    lines += [f"| {batch} | {hidden} | {fp32:.3f} | {bf16:.3f} | {fp32 / bf16:.2f} |" for batch, hidden, fp32, bf16 in found]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("fullwatt", type=pathlib.Path)
    parser.add_argument("--commit", default="")
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS)
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    found = [(batch, hidden, step_ms(hidden, batch, False), step_ms(hidden, batch, True)) for batch in BATCHES for hidden in WIDTHS]
    text = table(found, running.machine(options.commit, options.fullwatt))
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "lstm_widths.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
