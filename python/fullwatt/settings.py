"""The settings in force: torch's flags, Python's collector, the environment. Reading them changes nothing and wakes no GPU."""

import gc
import os
import sys

NAMES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "CUDA_LAUNCH_BLOCKING",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "CUDA_VISIBLE_DEVICES",
)
PREFIXES = ("NCCL_", "TORCH_", "TORCHINDUCTOR_")


def environment():
    """The variables that change how a training runs."""
    return {name: value for name, value in os.environ.items() if name in NAMES or name.startswith(PREFIXES)}


def in_force(torch):
    """Every setting that can be read."""
    values = {}
    for name, question in questions(torch).items():
        try:
            values[name] = question()
        except Exception:
            continue
    return values


def questions(torch):
    """How each setting is read."""
    backends, c = torch.backends, torch._C
    cuda = backends.cuda
    return {
        "mkldnn.enabled": lambda: bool(backends.mkldnn.enabled) if backends.mkldnn.is_available() else None,
        "cudnn.enabled": lambda: backends.cudnn.enabled,
        "cudnn.benchmark": lambda: backends.cudnn.benchmark,
        "cudnn.deterministic": lambda: backends.cudnn.deterministic,
        "cudnn.allow_tf32": lambda: backends.cudnn.allow_tf32,
        "matmul.allow_tf32": lambda: cuda.matmul.allow_tf32,
        "matmul.precision": torch.get_float32_matmul_precision,
        "matmul.bf16_reduced": lambda: bool(cuda.matmul.allow_bf16_reduced_precision_reduction),
        "sdp.flash": lambda: cuda.flash_sdp_enabled(),
        "sdp.efficient": lambda: cuda.mem_efficient_sdp_enabled(),
        "sdp.math": lambda: cuda.math_sdp_enabled(),
        "sdp.cudnn": lambda: cuda.cudnn_sdp_enabled(),
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled,
        "anomaly_detection": torch.is_anomaly_enabled,
        "profiler": lambda: c._autograd._profiler_enabled(),
        "threads": torch.get_num_threads,
        "interop_threads": torch.get_num_interop_threads,
        "default_dtype": lambda: str(torch.get_default_dtype()).replace("torch.", ""),
        "gc.enabled": gc.isenabled,
        "gc.threshold": lambda: list(gc.get_threshold()),
        "grad_mode": torch.is_grad_enabled,
        "sync_debug": lambda: sync_debug(torch),
        "switch_interval": sys.getswitchinterval,
    }


def sync_debug(torch):
    """Asking would start CUDA; before that it is off."""
    return torch.cuda.get_sync_debug_mode() if torch.cuda.is_initialized() else 0
