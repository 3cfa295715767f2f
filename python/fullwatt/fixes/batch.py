"""Another batch size, with the user's consent: another training, and with it a learning rate that fits."""

from ..weak import Known
from .learning_rate import LearningRates

NAME = "batch-size"


def batch_size(tools, entry):
    """The loaders that are read for training get it, and with the first of them the learning rate follows."""
    torch, report = tools.torch, tools.report
    size, factor = int(entry["size"]), float(entry.get("learning_rate") or 1)
    rates = LearningRates(tools, factor) if factor != 1 else None

    def change(loader):
        why = why_not(torch, loader, size)
        if why:
            if report.state(NAME) != "in-force":
                report.refused(NAME, why)
            return
        own = loader.batch_sampler
        tools.as_written.group(loader)
        tools.as_written.change(loader, {"batch_sampler": torch.utils.data.BatchSampler(own.sampler, size, own.drop_last),
                                         "batch_size": size if loader.batch_size is not None else None})  # fmt: skip
        if rates is not None:
            rates.scale()
        report.in_force(NAME, "%d instead of %d%s" % (size, own.batch_size, ", learning rate × %g" % factor if factor != 1 else ""))

    change_training_loaders(tools, change)
    report.waiting(NAME, "until a loader is read")


def change_training_loaders(tools, change):
    """Calls `change(loader)` once: where a loader shuffles when it is made, so that its length is right; otherwise when an epoch with gradients begins."""
    torch, agent, seen = tools.torch, tools.agent, Known()

    def change_once(loader):
        if seen.get(loader) is None and not tools.is_refused:
            seen.put(loader, True)
            change(loader)

    def make_init(original):
        def __init__(self, *args, **kwargs):
            original(self, *args, **kwargs)
            if is_shuffled(torch, self):
                agent.attempt(change_once, self)

        return __init__

    def make_iter(original):
        def __iter__(self):
            if torch.is_grad_enabled():
                agent.attempt(change_once, self)
            return original(self)

        return __iter__

    tools.patches.replace(torch.utils.data.DataLoader, "__init__", make_init)
    tools.patches.replace(torch.utils.data.DataLoader, "__iter__", make_iter)


def is_shuffled(torch, loader):
    return isinstance(getattr(loader, "sampler", None), (torch.utils.data.RandomSampler, torch.utils.data.WeightedRandomSampler, torch.utils.data.DistributedSampler))


def why_not(torch, loader, size):
    """Why a loader cannot have it; empty when it can."""
    if type(loader.batch_sampler) is not torch.utils.data.BatchSampler:
        return "the loader does not make its batches by size"
    if loader.batch_sampler.batch_size == size:
        return "the loader has it already"
    if len(loader.batch_sampler.sampler) < 2 * size:
        return "the data set has %d samples only" % len(loader.batch_sampler.sampler)
    return ""
