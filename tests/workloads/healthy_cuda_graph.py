"""Healthy: forward and backward pass are captured once as a CUDA graph and replayed."""

import torch
from torch import nn

from common import Meter


class Graphed:
    """A forward and backward pass over fixed memory; without a GPU it simply runs."""

    def __init__(self, model, features, targets):
        self.model, self.features, self.targets, self.graph = model, features, targets, None
        if features.is_cuda:
            self.capture()

    def run(self):
        with torch.autocast(self.features.device.type, torch.bfloat16, enabled=self.features.is_cuda, cache_enabled=False):
            self.loss = nn.functional.mse_loss(self.model(self.features), self.targets)
        self.loss.backward()

    def capture(self):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.model.zero_grad()
                self.run()
        torch.cuda.current_stream().wait_stream(stream)
        self.model.zero_grad()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.run()

    def __call__(self):
        if self.graph is not None:
            self.graph.replay()
            return
        self.model.zero_grad()
        self.run()


meter = Meter()
torch.set_float32_matmul_precision("high")
width, batch = meter.pick(2048, 256), meter.pick(16384, 128)
features = torch.randn(8, batch, width, device=meter.device)
targets = torch.randn(batch, width, device=meter.device)
model = nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(8)]).to(meter.device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=meter.device == "cuda")
graphed = Graphed(model, features[0].clone(), targets)

step, going = 0, True
while going:
    graphed.features.copy_(features[step % 8])
    graphed()
    optimizer.step()
    going = meter.step(batch)
    step += 1
meter.finish(graphed.loss, lambda: (graphed(), optimizer.step()))
