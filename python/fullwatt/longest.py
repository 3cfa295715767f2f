"""The longest batch of an epoch: where samples differ in length, a short trial may not come across it, and its memory would be found out too late.

`lengths`: n has a trial look for the longest samples when its steps are done, for n seconds at most, and tell them by the fact `lengths`. `longest`: {indices, of} has one
train on a batch of them; `of` is the length of the loader's sampler.
"""

import itertools
import random
import time

from .describe import elements

MOST = 64  # samples that are told
PLACE = 2  # of that batch: the optimiser has its memory by then, and steps are not timed yet


def install(torch, agent, wanted):
    """Does what a trial is asked for."""
    if wanted.get("lengths"):
        Lengths(torch, agent, float(wanted["lengths"]))
    if wanted.get("longest"):
        train_on(torch, agent, **wanted["longest"])


class Lengths:
    """Looks at the samples of the first loader that is read for training."""

    def __init__(self, torch, agent, seconds):
        self._torch = torch
        self._agent = agent
        self._seconds = seconds
        self._loader = None  # held: a program need not do so while it reads it
        agent.patches.replace(torch.utils.data.DataLoader, "__iter__", self._noting)
        agent.at_end.append(self._tell)

    def _noting(self, original):
        def __iter__(loader):
            if self._loader is None and self._torch.is_grad_enabled():
                self._loader = loader
            return original(loader)

        return __iter__

    def _tell(self):
        loader = self._loader
        if loader is None or loader.batch_sampler is None or isinstance(loader.dataset, self._torch.utils.data.IterableDataset):
            return
        indices = list(loader.batch_sampler.sampler)
        random.Random(0).shuffle(indices)  # so that those that are read in time stand for all
        lengths = []
        try:
            lengths.extend(self._read(loader, indices))
        finally:
            varies = len(set(length for length, _ in lengths)) > 1
            longest = [index for _, index in sorted(lengths, key=lambda pair: pair[0], reverse=True)[:MOST]]
            told = varies and all(type(index) is int for index in longest)
            self._agent.facts.add("lengths", varies=varies, read=len(lengths), of=len(indices), longest=longest if told else [])

    def _read(self, loader, indices):
        end = time.monotonic() + self._seconds
        for index in indices:
            yield elements(self._torch, loader.collate_fn([loader.dataset[index]])), index
            if time.monotonic() > end:
                return


def train_on(torch, agent, indices, of):
    """One batch of the first epoch is made of these samples, again and again where there are too few."""
    is_done = []

    def make(original):
        def __iter__(self):
            batches = original(self)
            if is_done or not torch.is_grad_enabled() or len(self.sampler) != of:
                return batches
            return with_longest(batches, indices, is_done)

        return __iter__

    agent.patches.replace(torch.utils.data.BatchSampler, "__iter__", make)


def with_longest(batches, indices, is_done):
    """The same batches, but for one that is as long as any can be. A loader with workers begins twice, and reads the second time only."""
    for place, batch in enumerate(batches):
        if place == PLACE:
            is_done.append(True)
            batch = list(itertools.islice(itertools.cycle(indices), len(batch)))
        yield batch
