"""Another batch size, with the user's consent: another training, and with it a learning rate that fits."""

from ..weak import Known

NAME = "batch-size"


def batch_size(tools, entry):
    """The loaders that are read for training get it."""
    torch, report = tools.torch, tools.report
    size, factor = int(entry["size"]), float(entry.get("learning_rate") or 1)

    def change(loader):
        why = why_not(torch, loader, size)
        if why:
            if report.state(NAME) != "in-force":
                report.refused(NAME, why)
            return
        report.in_force(NAME, "%d instead of %d%s" % (size, loader.batch_size, ", learning rate × %g" % factor if factor != 1 else ""))
        vars(loader.batch_sampler)["batch_size"] = vars(loader)["batch_size"] = size

    change_training_loaders(tools.patches, torch, tools.agent, change)
    if factor != 1:
        tools.patches.replace(torch.optim.Optimizer, "__init__", lambda original: make_optimizer_init(tools, original, factor))
    report.waiting(NAME, "until a loader is read")


def change_training_loaders(patches, torch, agent, change):
    """Calls `change(loader)` once: where a loader shuffles when it is made, so that its length is right; otherwise when an epoch with gradients begins."""
    seen = Known()

    def change_once(loader):
        if seen.get(loader) is None:
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

    patches.replace(torch.utils.data.DataLoader, "__init__", make_init)
    patches.replace(torch.utils.data.DataLoader, "__iter__", make_iter)


def make_optimizer_init(tools, original, factor):
    """Before any schedule looks at it."""

    def __init__(self, *args, **kwargs):
        original(self, *args, **kwargs)
        tools.agent.attempt(scale, self, factor)

    return __init__


def scale(optimizer, factor):
    """The learning rates of all groups, and of those that are added later."""
    for settings in [optimizer.defaults] + optimizer.param_groups:
        if isinstance(settings.get("lr"), (int, float)):
            settings["lr"] *= factor


def is_shuffled(torch, loader):
    return isinstance(getattr(loader, "sampler", None), (torch.utils.data.RandomSampler, torch.utils.data.WeightedRandomSampler, torch.utils.data.DistributedSampler))


def why_not(torch, loader, size):
    """Why a loader cannot have it; empty when it can."""
    if type(loader.batch_sampler) is not torch.utils.data.BatchSampler:
        return "the loader does not make its batches by size"
    if loader.batch_size == size:
        return "the loader has it already"
    if len(loader.sampler) < 2 * size:
        return "the data set has %d samples only" % len(loader.sampler)
    return ""
