"""The wait for the next batch (torch.utils.data.DataLoader, fullwatt.Loader), its facts, and the cached batches of the ceiling test."""

import sys
import weakref
from threading import get_ident
from time import perf_counter_ns as now

from .. import describe
from ..agent import CEILING, EVALUATING, LEARNING, OFF, OPENING, VARYING
from ..measure import leave_to_parent
from ..recorder import DATA, NEXT_BATCH
from ..weak import Known
from .cached_batches import CachedBatches

MOST_TRAIN = 64  # loaders that are told again when the training begins to read them
FIRST_BEGUN = 8  # iterations of a loader before they are counted aloud
MOST_IDLE = 256  # batches of the ceiling test without a backward pass: more are no part of a step


def install(agent, torch, inputs, evaluations):
    """Hooks the loader and its iterators."""
    module = torch.utils.data.dataloader
    loaders = Loaders(agent, torch, inputs, evaluations)
    agent.patches.replace(module.DataLoader, "__init__", loaders.make_init)
    agent.patches.replace(module.DataLoader, "__iter__", loaders.make_iter)
    agent.patches.replace(module._BaseDataLoaderIter, "__init__", loaders.make_iterator_init)
    agent.patches.replace(module._MultiProcessingDataLoaderIter, "__del__", loaders.make_end)

    def hook_batches(iterator):
        agent.patches.replace(iterator, "__next__", lambda original: make_next(agent, original, loaders))

    hook_batches(module._BaseDataLoaderIter)
    agent.hook_batches = hook_batches

    def quicken():
        agent.patches.quicken(
            module._BaseDataLoaderIter, "__next__",
            lambda original, ours: agent.recorder.hook(NEXT_BATCH, agent, original, ours, loaders.epoch_ended),
        )  # fmt: skip

    agent.at_steady.append(quicken)


def make_next(agent, original, loaders):
    """The hook of every batch; in a steady step it costs two looks at the clock."""
    careful = loaders.careful

    def __next__(self):
        if agent.detail or get_ident() != agent.thread:
            return careful(self, original)
        start = now()
        try:
            batch = original(self)
        except StopIteration:
            agent.data_ns += now() - start
            loaders.epoch_ended(self)
            raise
        agent.data_ns += now() - start
        agent.credits += 1
        return batch

    return __next__


class Loaders:
    """Numbers the loaders and does what a steady batch does not need."""

    def __init__(self, agent, torch, inputs, evaluations):
        self._agent = agent
        self._torch = torch
        self._inputs = inputs
        self._evaluations = evaluations
        self._numbers = Known()
        self._made_so_far = 0
        self._told = {}  # site and fact by number
        self._train = set()  # numbers of those that the training reads
        self._iterators = Known()  # the newest of each loader
        self._over = []  # numbers of loaders and batches, of iterators that are gone
        self._epochs = {}
        self._begun = {}
        self._cached = {}  # the ceiling test's batches of each loader
        self._idle = 0  # of these, since the last backward pass or step
        self._progress = None
        agent.at_fork.append(lambda: leave_to_parent(self._cached))

    def make_init(self, original):
        loaders = self

        def __init__(self, *args, **kwargs):
            original(self, *args, **kwargs)
            loaders._agent.attempt(loaders._made, self)

        return __init__

    def _made(self, loader):
        number = self._made_so_far
        self._made_so_far += 1
        self._numbers.put(loader, number)
        self._tell(loader, number, self._agent.sites.here())

    def _tell(self, loader, number, site):
        fact = describe.loader_fact(self._torch, loader)
        self._told[number] = (site, fact)
        self._agent.facts.add("loader", id=number, site=site, trains=number in self._train, **fact)

    def _tell_if_changed(self, loader):
        """A program, or a fix, may have changed its settings since it was made; and now it shows whether the training reads it."""
        number = self._numbers.get(loader)
        site, told = self._told.get(number, (None, None))
        if told is None:
            return
        is_news = any(getattr(loader, name, None) != told[name] for name in describe.LOADER_SETTINGS)
        if number not in self._train and len(self._train) < MOST_TRAIN and self._torch.is_grad_enabled() and not self._agent.detail & EVALUATING:
            self._train.add(number)
            is_news = True
        if is_news:
            self._tell(loader, number, site)

    def make_iterator_init(self, original):
        loaders = self

        def __init__(self, loader):
            original(self, loader)
            loaders._agent.attempt(loaders._made_iterator, self, loader)

        return __init__

    def _made_iterator(self, iterator, loader):
        number = iterator._fullwatt_loader = self._numbers.get(loader)
        self._iterators.put(loader, weakref.ref(iterator))
        self._tell_if_changed(loader)
        self._tell_begun(number)
        if self._agent.detail & LEARNING and not self._agent.detail & EVALUATING:
            self._inputs.saw_loader(loader)

    def _tell_begun(self, number):
        """How often it was iterated from the start, said now and then: more often than it came to its end shows who begins anew for each batch."""
        begun = self._begun[number] = self._begun.get(number, 0) + 1
        if begun >= FIRST_BEGUN and begun & (begun - 1) == 0:
            self._agent.facts.add("iterators", loader=number, begun=begun, ended=self._epochs.get(number, 0))

    def make_iter(self, original):
        """An epoch begins: starting the workers is waiting for data, too."""
        loaders, agent = self, self._agent

        def __iter__(self):
            start = now()
            agent.attempt(loaders._tell_left, self)
            iterator = original(self)
            agent.attempt(open_again, iterator)
            loaders._waited_since(start)
            return iterator

        return __iter__

    def make_end(self, original):
        """An iterator is given up: so is ending its workers."""
        loaders, clock, is_over = self, now, sys.is_finalizing

        def __del__(self):
            if is_over():  # the modules may be gone
                return original(self)
            start = clock()
            if is_left_at_its_end(self):
                loaders._over.append((self._fullwatt_loader, self._num_yielded))
            original(self)
            loaders._waited_since(start)

        return __del__

    def _waited_since(self, start):
        agent = self._agent
        if agent.thread == get_ident() and not agent.detail & (OPENING | EVALUATING | OFF):
            agent.guard(self._waited, start, now())

    def _waited(self, start, end):
        """Waited for the loader, but got no batch."""
        if self._agent.detail:
            self._agent.tell(DATA, start, end)
        else:
            self._agent.data_ns += end - start

    def careful(self, iterator, original):
        """A batch outside the steady state."""
        agent = self._agent
        if agent.detail & OFF or agent.trains_elsewhere() or not agent.ready(may_open=not agent.is_child):
            return original(iterator)
        if agent.detail & EVALUATING:
            agent.guard(self._evaluations.poll)
        if agent.detail & CEILING and not agent.detail & EVALUATING:
            return self._cached_batch(iterator, original)
        start = now()
        try:
            batch = original(iterator)
        except StopIteration:
            if not agent.detail & EVALUATING:
                agent.guard(self._waited, start, now())
            self.epoch_ended(iterator)
            raise
        agent.guard(self._after_batch, batch, start, now())
        return batch

    def _after_batch(self, batch, start, end):
        agent = self._agent
        if agent.detail & EVALUATING:
            return
        agent.tell(DATA, start, end)
        agent.credits += 1
        agent.batches += 1
        if agent.detail & LEARNING:
            agent.attempt(self._inputs.saw_batch, batch)
        if agent.detail & VARYING:
            self._inputs.sizes.append(self._inputs.size_of(batch))

    def _cached_batch(self, iterator, original):
        """The same few batches for ever, or the loader's own where nothing is learned from them: an evaluation that nobody recognised has to come to its end."""
        if self._is_idle():
            return original(iterator)
        number, start = getattr(iterator, "_fullwatt_loader", None), now()
        cached = self._cached.setdefault(number, CachedBatches(self._torch))
        batch = cached.next(lambda: original(iterator), start)
        self._agent.guard(self._after_batch, batch, start, now())
        return batch

    def _is_idle(self):
        progress = (self._agent.steps, self._agent.backwards)
        self._idle = self._idle + 1 if progress == self._progress else 0
        self._progress = progress
        return self._idle > MOST_IDLE

    def epoch_ended(self, iterator):
        """The loader has no more batches."""
        self._agent.guard(self._tell_epoch, iterator)

    def _tell_epoch(self, iterator):
        if hasattr(iterator, "_fullwatt_is_open"):
            iterator._fullwatt_is_open = False
        self._add_epoch(getattr(iterator, "_fullwatt_loader", None), getattr(iterator, "_num_yielded", None))

    def _tell_left(self, loader):
        """An iteration begins: those before it are over, also where the program counts batches and never asks for one too many."""
        newest = self._iterators.get(loader)
        iterator = newest() if newest is not None else None
        if iterator is not None and is_left_at_its_end(iterator):
            self._tell_epoch(iterator)
        while self._over:
            self._add_epoch(*self._over.pop())

    def _add_epoch(self, number, batches):
        self._epochs[number] = self._epochs.get(number, 0) + 1
        self._agent.facts.add("epoch", loader=number, batches=batches, number=self._epochs[number])


def open_again(iterator):
    """Whoever makes it: that of another library may have no attributes."""
    if hasattr(iterator, "_fullwatt_loader"):
        iterator._fullwatt_is_open = True


def is_left_at_its_end(iterator):
    """It has given all batches, and was not asked for more. Never raises: not all know how many there are."""
    try:
        return getattr(iterator, "_fullwatt_is_open", False) and 0 < iterator._num_yielded == len(iterator)
    except Exception:
        return False
