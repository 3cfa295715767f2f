"""What the program declares about its training: autocast, GradScaler, distributed wrappers, CUDA graphs."""

import weakref

from ..agent import torch_distributed
from ..describe import short

WARM_UP = "warm-up"


def install(agent, torch, actions):
    """Hooks the constructors; autocast only during the warm-up, since it is entered in every step."""
    declared = Declared(agent, torch, actions)
    patches, parallel = agent.patches, torch.nn.parallel
    patches.replace(torch.amp.autocast_mode.autocast, "__enter__", declared.make_autocast, WARM_UP)
    patches.replace(grad_scaler(torch), "__init__", declared.after_init(declared.scaler))
    patches.replace(parallel.DistributedDataParallel, "__init__", declared.after_init(declared.distributed))
    patches.replace(parallel.DataParallel, "__init__", declared.after_init(declared.data_parallel))
    patches.replace(torch.cuda.graphs.CUDAGraph, "capture_begin", declared.make_capture)


def grad_scaler(torch):
    """torch.cuda.amp's own class before torch 2.3, the base of both since."""
    return torch.amp.GradScaler if hasattr(torch.amp, "GradScaler") else torch.cuda.amp.GradScaler


class Declared:
    """Writes one fact for each thing, once for each place that does it."""

    def __init__(self, agent, torch, actions):
        self._agent = agent
        self._torch = torch
        self._actions = actions
        self._seen = set()

    def after_init(self, tell):
        """Makes a constructor that also tells."""
        attempt = self._agent.attempt

        def make(original):
            def __init__(self, *args, **kwargs):
                original(self, *args, **kwargs)
                attempt(tell, self)

            return __init__

        return make

    def make_autocast(self, original):
        attempt, autocast = self._agent.attempt, self.autocast

        def __enter__(self):
            attempt(autocast, self)
            return original(self)

        return __enter__

    def autocast(self, context):
        """The fact `autocast`."""
        site = self._agent.sites.here()
        dtype = getattr(context, "fast_dtype", None)
        enabled = bool(getattr(context, "_enabled", True))
        key = (str(site), str(dtype), enabled)
        if key in self._seen:
            return
        self._seen.add(key)
        device = getattr(context, "device", None)
        self._agent.facts.add("autocast", device=str(device), dtype=short(dtype), enabled=enabled, site=site)

    def scaler(self, scaler):
        """The fact `scaler`; the loss is divided by its scale when it is read."""
        self._actions.losses.scalers.append(weakref.ref(scaler))
        self._agent.facts.add("scaler", enabled=bool(scaler.is_enabled()), site=self._agent.sites.here())

    def distributed(self, module):
        """The fact `distributed`."""
        self._agent.facts.add(
            "distributed",
            backend=torch_distributed("get_backend"),
            world_size=torch_distributed("get_world_size"),
            find_unused_parameters=getattr(module, "find_unused_parameters", None),
            bucket_cap_mb=getattr(module, "bucket_bytes_cap", 0) / (1 << 20) or None,
            static_graph=getattr(module, "static_graph", None),
            gradient_as_bucket_view=getattr(module, "gradient_as_bucket_view", None),
        )

    def data_parallel(self, module):
        """The fact `data_parallel`."""
        devices = [str(device) for device in getattr(module, "device_ids", None) or []]
        self._agent.facts.add("data_parallel", devices=devices, site=self._agent.sites.here())

    def make_capture(self, original):
        declared = self

        def capture_begin(self, *args, **kwargs):
            declared._agent.guard(declared._captured)
            return original(self, *args, **kwargs)

        return capture_begin

    def _captured(self):
        self._actions.finish_counting(None)
        self._actions.graphs += 1
        self._agent.facts.add("graphs", id=0, captures=self._actions.graphs)
