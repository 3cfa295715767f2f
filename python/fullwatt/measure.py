"""Reads the loss and the allocator's figures about once a second, without making the program wait for the GPU."""

import ctypes
import struct
import time

from .agent import EVALUATING
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
        self._device = None
        self._gpus_told = False
        self._peaks = {"allocated": 0, "reserved": 0, "training": 0}  # the last one outside evaluations
        self._fraction = fraction_reader(torch, agent.patches)
        agent.at_end.append(self.tell)

    def read(self):
        """One record, and a fact each minute."""
        cuda = self._torch.cuda
        if not cuda.is_initialized():
            return
        if not self._gpus_told:
            self._tell_gpus()
        stats = self._figures()
        at_ns = time.perf_counter_ns()
        self._agent.recorder.record(
            MEMORY, 0, self._device, at_ns, 0, stats["allocated"], stats["reserved"], stats["retries"], stats["device_allocations"]
        )
        if at_ns - self._fact_ns > MINUTE_NS:
            self._fact_ns = at_ns
            self.tell()

    def tell(self):
        """The fact `memory`."""
        if not self._torch.cuda.is_initialized():
            return
        self._device = trained_device(self._torch)
        stats = self._figures()
        self._agent.facts.add(
            "memory",
            id=self._device,
            peak_allocated_bytes=self._peaks["allocated"],
            peak_reserved_bytes=self._peaks["reserved"],
            training_peak_bytes=self._peaks["training"],
            retries=stats["retries"],
            oom=stats["oom"],
            device_allocations=stats["device_allocations"],
            device=self._device,
            **(self._agent.attempt(self._room, stats["reserved"]) or {}),
        )

    def turn(self):
        """Training is about to give way to an evaluation, or to come back: torch's peaks begin anew, so that each has its own."""
        if self._torch.cuda.is_initialized():
            self._figures()
            self._torch.cuda.reset_peak_memory_stats(self._device)

    def _room(self, reserved):
        """The card's memory, what torch may take of it, and what is taken beside that: by others, and by CUDA itself."""
        free, total = self._torch.cuda.mem_get_info(self._device)
        return {"card_bytes": total, "allowed_bytes": int(self._fraction(self._device) * total), "beside_bytes": max(0, total - free - reserved)}

    def _figures(self):
        if self._device is None:
            self._device = trained_device(self._torch)
        stats = figures(self._torch, self._device)
        peaks = {"allocated": stats["peak_allocated"], "reserved": stats["peak_reserved"]}
        if not self._agent.detail & EVALUATING:
            peaks["training"] = stats["peak_allocated"]
        self._peaks.update((name, max(value, self._peaks[name])) for name, value in peaks.items())
        return stats

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


def trained_device(torch):
    """The card that holds most of what this process has: a model need not lie on the current one."""
    cuda = torch.cuda
    return max(range(cuda.device_count()), key=lambda device: (cuda.memory_reserved(device), device == cuda.current_device()))


def fraction_reader(torch, patches):
    """What tells the share of a card that this process may take. Older versions of torch do not tell it: there what the program sets is noted."""
    if hasattr(torch.cuda, "get_per_process_memory_fraction"):
        return lambda device: torch.cuda.get_per_process_memory_fraction(device)
    noted = [1.0]

    def make(original):
        def set_per_process_memory_fraction(fraction, *args, **kwargs):
            original(fraction, *args, **kwargs)
            noted[0] = float(fraction)

        return set_per_process_memory_fraction

    for owner in (torch.cuda, torch.cuda.memory):
        patches.replace(owner, "set_per_process_memory_fraction", make)
    return lambda device: noted[0]


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
