"""Facts about the user's objects: models, inputs, optimisers, loaders. Reads only, and never moves a tensor."""

from collections.abc import Mapping

WRAPPERS = ("DistributedDataParallel", "DataParallel", "FullyShardedDataParallel", "OptimizedModule")
TENSOR_DEPTH = 4
LOADER_SETTINGS = ("num_workers", "pin_memory", "prefetch_factor", "persistent_workers")  # that may change after a loader is made


def first_tensor(torch, value, depth=0):
    """The first tensor with a leading dimension in a batch or in the arguments of a call."""
    if isinstance(value, torch.Tensor):
        return value if value.dim() > 0 else None
    if depth >= TENSOR_DEPTH:
        return None
    for item in parts_of(torch, value):
        found = first_tensor(torch, item, depth + 1)
        if found is not None:
            return found
    return None


def parts_of(torch, value):
    """What a batch, or a part of one, is made of."""
    if isinstance(value, Mapping):
        items = value.values()
    elif isinstance(value, (list, tuple)):
        items = value[:16]
    else:
        items = vars(value).values() if hasattr(value, "__dict__") and not isinstance(value, torch.nn.Module) else ()
    return list(items)[:16]


def elements(torch, value, depth=0):
    """How many numbers the tensors of a batch have."""
    if isinstance(value, torch.Tensor):
        return value.numel()
    return sum(elements(torch, item, depth + 1) for item in parts_of(torch, value)) if depth < TENSOR_DEPTH else 0


def unwrap(module):
    """The user's own module inside torch's wrappers, and the name of the outermost wrapper that is not the compiler's."""
    wrapper = None
    for _ in range(8):
        name = type(module).__name__
        inner = getattr(module, "_orig_mod" if name == "OptimizedModule" else "module", None)
        if name not in WRAPPERS or inner is None:
            break
        wrapper = wrapper or (name if name != "OptimizedModule" else None)
        module = inner
    return module, wrapper


def input_fact(torch, tensor, samples):
    """What goes into the outermost module."""
    four = tensor.dim() == 4
    return {
        "shape": list(tensor.shape),
        "dtype": short(tensor.dtype),
        "device": str(tensor.device),
        "contiguous": bool(tensor.is_contiguous()),
        "channels_last": bool(four and tensor.is_contiguous(memory_format=torch.channels_last)),
        "samples": samples,
    }


def short(dtype):
    """float32 instead of torch.float32."""
    return str(dtype).replace("torch.", "")


def tally(items):
    """How often each name occurs, weighted: {name: sum} of (name, weight)."""
    sums = {}
    for name, weight in items:
        sums[name] = sums.get(name, 0) + weight
    return sums


def model_fact(torch, module, compiled):
    """The outermost module as it is trained."""
    inner, wrapper = unwrap(module)
    parameters = list(inner.parameters())
    modules = list(inner.modules())
    return {
        "class": type(inner).__name__,
        "parameters": sum(p.numel() for p in parameters),
        "trainable": sum(p.numel() for p in parameters if p.requires_grad),
        "bytes": sum(p.numel() * p.element_size() for p in parameters),
        "dtypes": tally((short(p.dtype), p.numel()) for p in parameters),
        "devices": tally((str(p.device), p.numel()) for p in parameters),
        "modules": tally((type(m).__name__, 1) for m in modules),
        "training": bool(inner.training),
        "compiled": bool(compiled or type(module).__name__ == "OptimizedModule"),
        "wrapper": wrapper,
        "channels_last": channels_last_share(torch, parameters),
        "batchnorm_bias": biases_before_normalisation(torch, modules),
        "batch_norms": sum(isinstance(m, torch.nn.modules.batchnorm._BatchNorm) for m in modules),
    }


def parameters_fact(parameters):
    """What is known of a model whose outermost module was not seen: the parameters of its optimiser."""
    return {
        "class": "",
        "parameters": sum(p.numel() for p in parameters),
        "trainable": sum(p.numel() for p in parameters if p.requires_grad),
        "bytes": sum(p.numel() * p.element_size() for p in parameters),
        "dtypes": tally((short(p.dtype), p.numel()) for p in parameters),
        "devices": tally((str(p.device), p.numel()) for p in parameters),
        "modules": {},
        "training": True,
        "compiled": True,
        "wrapper": None,
        "channels_last": 0.0,
        "batchnorm_bias": 0,
        "batch_norms": None,
    }


def channels_last_share(torch, parameters):
    """Share of the 4-d weights that lie in channels-last order; those of 1×1 kernels lie in both and count for neither."""
    only_last = total = 0
    for weight in parameters:
        if weight.dim() != 4:
            continue
        last = weight.is_contiguous(memory_format=torch.channels_last)
        if last and weight.is_contiguous():
            continue
        total += 1
        only_last += bool(last)
    return only_last / total if total else 0.0


def biases_before_normalisation(torch, modules):
    """Convolutions with a bias right before a batch normalisation, which removes it again."""
    nn, count = torch.nn.modules, 0
    for module in modules:
        children = list(module.children())
        for first, second in zip(children, children[1:]):
            is_pair = isinstance(first, nn.conv._ConvNd) and isinstance(second, nn.batchnorm._BatchNorm)
            count += bool(is_pair and first.bias is not None)
    return count


def optimizer_parameters(optimizer):
    """All tensors an optimiser updates."""
    return [p for group in optimizer.param_groups for p in group.get("params", ()) if hasattr(p, "numel")]


def optimizer_fact(optimizer):
    """An optimiser as it is set for its first group."""
    group = optimizer.param_groups[0] if optimizer.param_groups else {}
    parameters = optimizer_parameters(optimizer)
    rate = group.get("lr")
    on_cpu = not hasattr(rate, "device") or rate.device.type == "cpu"
    return {
        "class": type(optimizer).__name__,
        "fused": group.get("fused"),
        "foreach": group.get("foreach"),
        "capturable": group.get("capturable"),
        "groups": len(optimizer.param_groups),
        "of_torch": type(optimizer).__module__.startswith("torch.optim"),
        "tensors": len(parameters),
        "devices": tally((str(p.device), p.numel()) for p in parameters),
        "lr": float(rate) if rate is not None and on_cpu else None,
    }


def loader_fact(torch, loader):
    """A DataLoader as it was made."""
    collate = getattr(loader, "collate_fn", None)
    context = getattr(loader, "multiprocessing_context", None)
    return {
        "dataset": type(loader.dataset).__name__,
        "dataset_length": length(loader.dataset),
        "iterable": isinstance(loader.dataset, torch.utils.data.IterableDataset),
        "batch_size": loader.batch_size,
        "num_workers": loader.num_workers,
        "pin_memory": bool(loader.pin_memory),
        "prefetch_factor": getattr(loader, "prefetch_factor", None),
        "persistent_workers": bool(getattr(loader, "persistent_workers", False)),
        "follows_epochs": follows_epochs(loader),
        "drop_last": bool(getattr(loader, "drop_last", False)),
        "shuffle": type(getattr(loader, "sampler", None)).__name__,
        "batches": batches(torch, loader),
        "context": context.get_start_method() if context is not None else None,
        "collate": function_name(collate),
    }


def function_name(function):
    """Of a function, or of the class of an object that is called."""
    return getattr(function, "__name__", type(function).__name__)


def follows_epochs(loader):
    """Whether the program tells its data set about epochs: workers that live through them would not hear of it."""
    return hasattr(loader.dataset, "set_epoch")


def length(dataset):
    """len() of a map-style data set; an iterable one may have none, or count wrongly."""
    try:
        return len(dataset)
    except Exception:
        return None


def batches(torch, loader):
    """len(loader) without its side effect: for iterable data sets it arms a warning."""
    if isinstance(loader.dataset, torch.utils.data.IterableDataset):
        return None
    return length(loader)


def varies(loader):
    """Whether the loader's batches differ in size by design."""
    sampler = getattr(loader, "batch_sampler", None)
    return sampler is not None and type(sampler).__name__ != "BatchSampler"
