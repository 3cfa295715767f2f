"""Reads the loss and the allocator's figures about once a second, without making the program wait for the GPU."""

import ctypes
import struct
import time

from .inputs import gpu_uuid
from .recorder import LOSS as LOSS_RECORD
from .recorder import MEMORY

MINUTE_NS = 60_000_000_000


class Losses:
    """Keeps the loss of a backward pass: on the CPU at once, on a GPU by a copy that is looked at when it has long arrived."""

    def __init__(self, agent, torch):
        self._agent = agent
        self._torch = torch
        self._reset()
        self.scalers = []  # weak references to the GradScalers of the program
        agent.at_fork.append(self._forked)
        agent.at_end.append(self.collect)

    def _reset(self):
        self._waiting = None  # (event, at_ns, step)
        self._cell = None  # pinned

    def _forked(self):
        leave_to_parent(self._waiting, self._cell)
        self._reset()

    def keep(self, tensors):
        """Keeps the loss for which backward was called."""
        value = self.value_in(tensors)
        if value is None:
            return
        if value.device.type == "cpu":
            self.write(float(value), time.perf_counter_ns(), self._agent.steps + 1)
        elif value.device.type == "cuda":
            self._copy(value)

    def value_in(self, tensors):
        """The loss in what backward was called with, or None."""
        loss = tensors[0] if isinstance(tensors, (list, tuple)) and tensors else tensors
        if not isinstance(loss, self._torch.Tensor) or loss.numel() != 1 or not loss.is_floating_point():
            return None
        return self._unscaled(loss.detach())

    def _unscaled(self, value):
        """The script's own loss, before GradScaler multiplied it."""
        for reference in self.scalers:
            scaler = reference()
            scale = getattr(scaler, "_scale", None)
            if scale is not None and scale.device == value.device and scaler.is_enabled():
                return value / scale
        return value

    def _copy(self, value):
        torch = self._torch
        if self._waiting is not None or torch.cuda.is_current_stream_capturing():
            return
        if self._cell is None:
            self._cell = torch.empty((), dtype=torch.float64, pin_memory=True)
        self._cell.copy_(value.reshape(()), non_blocking=True)
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(value.device))
        self._waiting = (event, time.perf_counter_ns(), self._agent.steps + 1)

    def collect(self):
        """Writes a loss whose copy has arrived."""
        if self._waiting is not None and self._waiting[0].query():
            _, at_ns, step = self._waiting
            self._waiting = None
            self.write(float(self._cell), at_ns, step)

    def write(self, value, at_ns, step):
        """One record."""
        bits = struct.unpack("<Q", struct.pack("<d", value))[0]
        self._agent.recorder.record(LOSS_RECORD, 0, 0, at_ns, 0, bits, step, 0, 0)


def leave_to_parent(*things):
    """In a forked child CUDA cannot be called, and freeing an event or pinned memory calls it: they are never freed there, not even at the end."""
    for thing in things:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


class Memory:
    """The figures of torch's CUDA allocator, once CUDA is up; before that nothing is asked, since asking would start it."""

    def __init__(self, agent, torch):
        self._agent = agent
        self._torch = torch
        self._fact_ns = 0
        self._gpus_told = False
        agent.at_end.append(self.tell)

    def read(self):
        """One record, and a fact each minute."""
        cuda = self._torch.cuda
        if not cuda.is_initialized():
            return
        if not self._gpus_told:
            self._tell_gpus()
        device = cuda.current_device()
        stats = figures(self._torch, device)
        at_ns = time.perf_counter_ns()
        self._agent.recorder.record(
            MEMORY, 0, device, at_ns, 0, stats["allocated"], stats["reserved"], stats["retries"], stats["device_allocations"]
        )
        if at_ns - self._fact_ns > MINUTE_NS:
            self._fact_ns = at_ns
            self.tell()

    def tell(self):
        """The fact `memory`."""
        if not self._torch.cuda.is_initialized():
            return
        device = self._torch.cuda.current_device()
        stats = figures(self._torch, device)
        self._agent.facts.add(
            "memory",
            id=device,
            peak_allocated_bytes=stats["peak_allocated"],
            peak_reserved_bytes=stats["peak_reserved"],
            retries=stats["retries"],
            oom=stats["oom"],
            device_allocations=stats["device_allocations"],
            device=device,
        )

    def _tell_gpus(self):
        self._gpus_told = True
        for index in range(self._torch.cuda.device_count()):
            properties = self._torch.cuda.get_device_properties(index)
            self._agent.facts.add(
                "gpu",
                id=index,
                index=index,
                name=properties.name,
                uuid=gpu_uuid(str(getattr(properties, "uuid", "") or "")),
                capability="%d.%d" % (properties.major, properties.minor),
                memory_bytes=properties.total_memory,
            )


def figures(torch, device):
    """What is needed of the allocator's many figures."""
    stats = torch.cuda.memory_stats_as_nested_dict(device)
    allocated = stats.get("allocated_bytes", {}).get("all", {})
    reserved = stats.get("reserved_bytes", {}).get("all", {})
    segments = stats.get("segment", {}).get("all", {})
    return {
        "allocated": allocated.get("current", 0),
        "peak_allocated": allocated.get("peak", 0),
        "reserved": reserved.get("current", 0),
        "peak_reserved": reserved.get("peak", 0),
        "retries": stats.get("num_alloc_retries", 0),
        "oom": stats.get("num_ooms", 0),
        "device_allocations": stats.get("num_device_alloc", segments.get("allocated", 0)),
    }
