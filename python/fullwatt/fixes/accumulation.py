"""A batch in parts whose gradients are added up before the step: the same training in less memory, with the user's consent.

The program's loop runs once for each part. Until the last one its optimiser does not step and its gradients are not cleared, and each part counts by its share of the
batch's samples, so that a loss that is a mean over samples has the gradients of the whole batch.
"""

import collections
import sys
import weakref

from ..describe import optimizer_parameters
from ..weak import Known
from .batch import change_training_loaders

NAME = "accumulation"
WHOLE = (1.0, True)  # what of its batch a part is, and whether it is the last


def accumulation(tools, entry):
    """Every loader that is read for training gives its batches in parts."""
    Accumulation(tools, int(entry["parts"]))


class Parts:
    """The batches of a sampler, in parts."""

    def __init__(self, whole, parts, is_over):
        self._whole = whole
        self._parts = parts
        self._is_over = is_over

    def __iter__(self):
        return PartIterator(iter(self._whole), self._parts, self._is_over)

    def __len__(self):
        if self._is_over():
            return len(self._whole)
        sampler, size = getattr(self._whole, "sampler", None), getattr(self._whole, "batch_size", None)
        if not hasattr(sampler, "__len__") or not size:
            return len(self._whole) * self._parts
        full, rest = divmod(len(sampler), size)
        return full * min(self._parts, size) + (0 if self._whole.drop_last else min(self._parts, rest))


class PartIterator:
    """`places` has what each part is that was given and not yet come to the program."""

    def __init__(self, batches, parts, is_over):
        self._batches = batches
        self._parts = parts
        self._is_over = is_over
        self._left = collections.deque()
        self.places = collections.deque()

    def __iter__(self):
        return self

    def __next__(self):
        if self._is_over():
            rest = [index for part, _ in self._left for index in part]
            self._left.clear()
            return rest or next(self._batches)
        if not self._left:
            self._left.extend(split(next(self._batches), self._parts))
        part, place = self._left.popleft()
        self.places.append(place)
        return part


def split(batch, parts):
    """Parts of a batch as equal as can be, each with its place."""
    batch = list(batch)
    parts = max(1, min(parts, len(batch)))
    length, longer = divmod(len(batch), parts)
    found, begin = [], 0
    for number in range(parts):
        end = begin + length + (number < longer)
        found.append((batch[begin:end], ((end - begin) / max(1, len(batch)), number == parts - 1)))
        begin = end
    return found


class Accumulation:
    """Knows which part the program is at, and holds back what belongs to the end of a batch."""

    def __init__(self, tools, parts):
        self._tools = tools
        self._torch, self._report, self._patches = tools.torch, tools.report, tools.patches
        self._parts = parts
        self._why_off = ""
        self._share, self._is_last = WHOLE
        self._backwards = self._steps = 0  # of this part
        self._gathers = False  # the gradients of earlier parts wait for the last one
        self._optimizer = lambda: None
        self._classes = set()  # of optimisers whose step is ours
        self._loaders = Known()
        self._install()
        self._report.waiting(NAME, "until a loader is read")

    def _install(self):
        torch, replace = self._torch, self._patches.replace
        self._patches.on_restore(lambda: self._stop("the plan is refused"))
        change_training_loaders(self._tools, self._take)
        replace(torch.utils.data.DataLoader, "_index_sampler", self._splitting)
        replace(torch.utils.data.DataLoader, "__iter__", self._beginning)
        replace(sys.modules["torch.utils.data.dataloader"]._BaseDataLoaderIter, "__next__", self._coming)
        replace(torch.autograd, "backward", self._weighing)
        replace(torch.optim.Optimizer, "__init__", self._making)
        for owner in (torch.optim.Optimizer, torch.nn.Module):
            replace(owner, "zero_grad", self._keeping)
        for name in ("clip_grad_norm_", "clip_grad_value_"):
            for module in (torch.nn.utils.clip_grad, torch.nn.utils):
                replace(module, name, self._clipping)
        scalers = torch.amp if hasattr(torch.amp, "GradScaler") else torch.cuda.amp  # torch 2.3 moved it
        replace(scalers.GradScaler, "step", self._stepping)
        for name in ("unscale_", "update"):
            replace(scalers.GradScaler, name, self._waiting)

    def _take(self, loader):
        if self._why_off:
            return
        if loader.batch_sampler is None:
            if self._report.state(NAME) != "in-force":
                self._report.refused(NAME, "the loader does not make batches")
            return
        self._tools.as_written.group(loader)
        self._loaders.put(loader, True)

    def _splitting(self, original):
        def sampler(loader):
            whole = original.fget(loader)
            return Parts(whole, self._parts, lambda: bool(self._why_off)) if self._loaders.get(loader) and not self._why_off else whole

        return property(sampler)

    def _beginning(self, original):
        """A loop that was left early leaves gradients of a batch that will never be whole."""
        def __iter__(loader):
            if self._gathers and self._torch.is_grad_enabled():
                self._gathers = False
                for parameter in self._parameters():
                    parameter.grad = None
            return original(loader)

        return __iter__

    def _coming(self, original):
        def __next__(iterator):
            batch = original(iterator)
            places = getattr(iterator._sampler_iter, "places", None)
            if places:
                place = places.popleft()
                if self._torch.is_grad_enabled():
                    self._come(place)
            return batch

        return __next__

    def _come(self, place):
        if self._backwards and not self._steps:
            self._stop("the program gathers gradients over several batches itself")
            for parameter in self._parameters():
                if parameter.grad is not None:
                    parameter.grad.div_(self._share)
        self._share, self._is_last = place
        self._backwards = self._steps = 0
        if not self._why_off and self._report.state(NAME) != "in-force":
            self._report.in_force(NAME, "each batch in %d parts" % self._parts)

    def _weighing(self, original):
        def backward(tensors, grad_tensors=None, *args, **kwargs):
            if self._gathers and all(parameter.grad is None for parameter in self._parameters()):
                self._stop("the program clears its gradients in a way of its own")
            if self._share == 1.0 or self._why_off:
                return original(tensors, grad_tensors, *args, **kwargs)
            self._backwards += 1
            roots = [tensors] if isinstance(tensors, self._torch.Tensor) else list(tensors)
            given = [grad_tensors] if isinstance(grad_tensors, self._torch.Tensor) else list(grad_tensors or [None] * len(roots))
            return original(roots, [self._weighed(root, gradient) for root, gradient in zip(roots, given)], *args, **kwargs)

        return backward

    def _weighed(self, root, gradient):
        if not root.requires_grad:
            return gradient
        return self._torch.full_like(root, self._share) if gradient is None else gradient * self._share

    def _parameters(self):
        optimizer = self._optimizer()
        return optimizer_parameters(optimizer) if optimizer is not None else []

    def _stop(self, why):
        """Batches come whole again; a part that is on its way already is a batch of its own, and so is what is left of its batch."""
        self._gathers = False
        if not self._why_off:
            self._why_off = why
            (self._report.undone if self._report.state(NAME) == "in-force" else self._report.refused)(NAME, why)

    def _making(self, original):
        def __init__(optimizer, *args, **kwargs):
            original(optimizer, *args, **kwargs)
            if self._tools.is_refused:
                return
            if self._optimizer() is not None:
                self._stop("the program has several optimisers, whose gradients may meet")
            elif isinstance(optimizer, self._torch.optim.LBFGS):
                self._stop("LBFGS computes its gradients within its step")
            self._optimizer = weakref.ref(optimizer)
            kind = type(optimizer)
            if kind not in self._classes:
                self._classes.add(kind)
                self._patches.replace(kind, "step", self._stepping)

        return __init__

    def _stepping(self, original):
        """Of an optimiser, or of a scaler that steps for one."""
        def step(stepper, *args, **kwargs):
            if self._is_early():
                if not self._steps:
                    result = self._gradients_alone(args, kwargs)
                    self._steps, self._gathers = 1, True
                    return result
                self._stop("the program makes several steps with one batch")
            result = original(stepper, *args, **kwargs)
            self._steps, self._gathers = 1, False
            return result

        return step

    def _gradients_alone(self, args, kwargs):
        """What a step does without its step: a closure still computes."""
        closure = kwargs.get("closure") or next((value for value in args if callable(value)), None)
        if closure is None:
            return None
        with self._torch.enable_grad():
            return closure()

    def _is_early(self):
        """Whether the batch goes on after this part."""
        return not self._is_last and not self._why_off

    def _waiting(self, original):
        def later(*args, **kwargs):
            return None if self._is_early() else original(*args, **kwargs)

        return later

    def _keeping(self, original):
        def zero_grad(*args, **kwargs):
            return None if self._gathers else original(*args, **kwargs)

        return zero_grad

    def _clipping(self, original):
        """Before the last part only the norm is told."""
        def clip(parameters, limit, *args, **kwargs):
            return original(parameters, float("inf") if self._is_early() else limit, *args, **kwargs)

        return clip
