"""Learns in the first steps which module is the outermost and how many samples go into it; afterwards nothing is looked at.

Samples of a step = leading dimension of the first tensor that goes into the outermost module, summed over its forwards. The
loader's batches are the cross-check: a batch counts once however many backward passes it takes (two networks, one batch).
"""

import weakref
from collections import deque

from . import describe
from .agent import VARYING

GROUP = "inputs"
ENOUGH_BACKWARDS = 2
STEP_LIMIT = 4
ALWAYS = 1 << 60  # credit for every backward there will be


class Inputs:
    """What is known of the model's input."""

    def __init__(self, agent, torch):
        self._agent = agent
        self._torch = torch
        self.at_module = []  # called with every outermost module that is trained, at its calls in the first steps
        self.at_result = []  # called with what it returns then
        self._reset()
        agent.at_fork.append(self._reset)

    def _reset(self):
        self.done = False
        self.model = None  # weak reference to the outermost module
        self._called = None  # where it is called from
        self.compiler_in_use = getattr(self, "compiler_in_use", False)
        self.sizes = deque(maxlen=4096)  # of fetched batches, where they vary
        self._inside = False
        self._forward = None  # (samples, input fact) of the first forward since the last backward
        self._input = None
        self._was_watching = False
        self._loader_batch = None
        self._batch_sizes = set()
        self._loader_varies = False
        self._backwards = 0
        self._samples = None

    def watch(self):
        """Sees calls of modules from now on. The compiler inlines Module.__call__, so where it is used only its own wrapper is watched."""
        if self.done or self._agent.patches.has(GROUP):
            return
        owner = self._torch.nn.Module if not self.compiler_in_use else _optimized_module()
        if owner is not None:
            self._agent.patches.replace(owner, "__call__", self._make_call, GROUP)

    def pause(self):
        """Gives torch its own Module.__call__ back: the compiler is about to be imported or used, and keeps what it finds."""
        self._was_watching = self._agent.patches.has(GROUP)
        self._agent.patches.restore(GROUP)

    def resume(self):
        """The compiler is imported."""
        if self._was_watching:
            self.watch()

    def _make_call(self, original):
        learn, attempt = self, self._agent.attempt

        def __call__(self, *args, **kwargs):
            if learn._inside or learn.done:
                return original(self, *args, **kwargs)
            learn._inside = True
            try:
                is_trained = attempt(learn._saw_call, self, args, kwargs)
                result = original(self, *args, **kwargs)
            finally:
                learn._inside = False
            for action in learn.at_result if is_trained else ():
                attempt(action, result)
            return result

        return __call__

    def _saw_call(self, module, args, kwargs):
        """Whether it is one that is trained here."""
        if self._agent.trains_elsewhere() or not self._torch.is_grad_enabled() or next(module.parameters(), None) is None:
            return False
        for action in self.at_module:
            action(module)
        if self._forward is None:
            self._learn_from(module, args, kwargs)
        return True

    def _learn_from(self, module, args, kwargs):
        tensor = describe.first_tensor(self._torch, args)
        tensor = tensor if tensor is not None else describe.first_tensor(self._torch, kwargs)
        if tensor is None:
            return
        samples = 1 if is_one_sample(tensor, module) else self._leading(tensor)
        self._forward = (samples, describe.input_fact(self._torch, tensor, samples))
        self.model = weakref.ref(module)
        self._called = self._agent.sites.here()

    def _leading(self, tensor):
        """The leading dimension, unless the second is the loader's batch size: then time comes first."""
        first, expected = int(tensor.shape[0]), self._loader_batch or 0
        swapped = tensor.dim() > 2 and expected > 1 and int(tensor.shape[1]) == expected and first % expected != 0
        return expected if swapped else first

    def saw_loader(self, loader):
        """A loader begins to give batches."""
        self._loader_varies = describe.varies(loader)

    def saw_batch(self, batch):
        """The loader gave this."""
        if self.done:
            return
        self.watch()
        tensor = describe.first_tensor(self._torch, batch)
        if tensor is not None:
            if not self._batch_sizes:
                self._agent.facts.add("batch", device=str(tensor.device))
            self._batch_sizes.add(int(tensor.shape[0]))
            self._loader_batch = self._loader_batch or int(tensor.shape[0])

    def size_of(self, batch):
        """The leading dimension of one batch, where they vary."""
        tensor = describe.first_tensor(self._torch, batch)
        return int(tensor.shape[0]) if tensor is not None else self._agent.batch

    def after_backward(self):
        """Returns the samples of this backward while learning."""
        forward, self._forward = self._forward, None
        self._backwards += 1
        if forward is not None:
            self._samples, self._input = forward[0], forward[1]
        counted = self._samples or self._loader_batch or 0
        if self._backwards >= ENOUGH_BACKWARDS and self._samples is not None:
            self.finish()
        return counted

    def after_step(self, optimizer):
        """A step is over: the next one is watched, or there were enough."""
        if self.done:
            return
        if self._agent.steps >= STEP_LIMIT:
            self.finish()
        else:
            self.watch()
        if self.done and self.model is None and optimizer is not None:
            parameters = describe.optimizer_parameters(optimizer)
            self._agent.facts.add("model", id=0, **describe.parameters_fact(parameters))

    def finish(self):
        """From now on samples are counted without looking."""
        self.done = True
        self.pause()
        agent = self._agent
        agent.batch = self._samples or self._loader_batch or 0
        by_batch = bool(self._batch_sizes) and (self._samples is None or self._samples in self._batch_sizes)
        fetched_ahead = max(0, agent.batches - agent.backwards)
        agent.credits = (fetched_ahead if by_batch else ALWAYS) if agent.batch else 0
        if by_batch and self._loader_varies:
            agent.detail |= VARYING
        agent.attempt(self._write_facts)

    def _write_facts(self):
        module = self.model() if self.model is not None else None
        if self._input is not None:
            self._agent.facts.add("input", **self._input)
        if module is None:
            return
        self._agent.facts.add("model", id=0, site=self._called, **describe.model_fact(self._torch, module, self.compiler_in_use))
        self._agent.facts.add("device_check", **self._device_check(module))

    def _device_check(self, module):
        torch = self._torch
        places = {
            "parameters": describe.tally((str(p.device), p.numel()) for p in module.parameters()),
            "buffers": describe.tally((str(b.device), b.numel()) for b in module.buffers()),
            "inputs": {self._input["device"]: 1} if self._input else {},
        }
        devices = {device for counts in places.values() for device in counts}
        device = next(iter(places["parameters"]), "")
        on_gpu = device.startswith("cuda") and torch.cuda.is_initialized()
        uuid = str(getattr(torch.cuda.get_device_properties(device), "uuid", "") or "") if on_gpu else None
        return dict(
            places,
            consistent=len(devices) <= 1,
            uuid=gpu_uuid(uuid),
            allocated_bytes=torch.cuda.memory_allocated(device) if on_gpu else 0,
        )


def is_one_sample(tensor, module):
    """Whether a vector is all features of one sample, as in reinforcement learning, and not one feature of many."""
    widths = (getattr(layer, "in_features", None) for layer in module.modules())
    return tensor.dim() == 1 and tensor.is_floating_point() and next(filter(None, widths), None) == tensor.shape[0]


def gpu_uuid(text):
    """The UUID as the driver writes it."""
    return text if not text or text.startswith(("GPU-", "MIG-")) else "GPU-" + text


def _optimized_module():
    import sys

    frame = sys.modules.get("torch._dynamo.eval_frame")
    return getattr(frame, "OptimizedModule", None)
