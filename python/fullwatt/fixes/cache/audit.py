"""Whether a data set gives the same samples every time: asked before they are packed, and again and again while the packed ones serve."""

import itertools
import time

from ...weak import weakly
from ..random_state import RandomState
from .fingerprint import fingerprint, reachable, remembered
from .form import Form
from .samples import Refused, fetch, twin_of, uncollated
from .values import is_same, leaves_of

PROBES = 8  # samples that are fetched twice
FIRST_AUDIT, RAREST_AUDIT = 16, 1024  # batches between two audits; the distance doubles
REST = 100  # times as long as an audit took there is none: at most 1 % of a training's time. A trial is too short for that share, and has but those that must be
MUST_EPOCHS = 2  # whose first batch is audited whatever that takes: the second shows what a program does between epochs


def count_of(torch, loader):
    """The number of samples of a loader that has some to cache; raises Refused."""
    data = loader.dataset
    if isinstance(data, torch.utils.data.IterableDataset):
        raise Refused("an iterable data set has no samples by number")
    if not loader._auto_collation:
        raise Refused("the loader does not make batches")
    if hasattr(data, "set_epoch"):
        raise Refused("its data set changes with the epoch")
    try:
        count = len(data)
    except TypeError:
        raise Refused("its data set has no length") from None
    if count < 2:
        raise Refused("its data set is empty")
    return count


def readable(torch, loader, count):
    """What reads samples that can be packed, the form of its batches, and the parts of some: the loader, or, where its batches are more than their samples one below the
    other, what leaves it to the loader's own function to put them together. Raises why neither can be."""
    why = None
    for reader in (loader, uncollated(loader)):
        try:
            form, parts = check_probes(torch, twin_of(torch, reader), spread(count))
            if reader is not loader and loader.num_workers > 0:
                check_collating(torch, twin_of(torch, loader).collate_fn, form.put_together(parts))
            return reader, form, parts
        except Exception as error:
            why = error
    raise why


def check_collating(torch, collate, samples):
    """What is drawn in a worker to put samples together nobody else can draw, nor know what is remembered there."""
    before, known = RandomState(torch, reachable(torch, collate)), remembered(collate)
    collate(samples)
    if before.is_drawn_from():
        raise Refused("its batches are put together at random, in workers")
    if remembered(collate) != known:
        raise Refused("its collate function remembers something from batch to batch, in workers")


def spread(count, shift=0):
    """Some numbers below `count`, far from each other."""
    return sorted({(count * i // PROBES + shift) % count for i in range(PROBES)})


def check_probes(torch, loader, probes):
    """Fetching is the same twice, draws no random numbers, and a batch is its samples one below the other, which can be copied."""
    before = RandomState(torch, reachable(torch, loader.dataset, loader.collate_fn))
    singles = [fetch(torch, loader, [index]) for index in probes]
    if before.is_drawn_from():
        raise Refused("its samples are drawn at random")
    known = remembered(loader.collate_fn)
    several = fetch(torch, loader, probes)
    if before.is_drawn_from():
        raise Refused("its samples are drawn at random")
    if remembered(loader.collate_fn) != known:
        raise Refused("its collate function remembers something from batch to batch")
    form = Form(torch, singles[0], several, len(probes))
    parts = form.parts(several, len(probes))
    for value in itertools.chain.from_iterable(part for part in parts if not isinstance(part, torch.Tensor)):
        leaves_of(torch, value)
    if not is_same(torch, parts, [joined(torch, same) for same in zip(*(form.parts(single, 1) for single in singles))]):
        raise Refused("two fetches of the same samples differ")
    return form, parts


def joined(torch, parts):
    """Several as one, one below the other."""
    return torch.cat(parts) if isinstance(parts[0], torch.Tensor) else [value for part in parts for value in part]


class Audits:
    """Compares packed samples with the data set, and tells why they must not serve any more, or nothing. `numbers` are those of the packed samples,
    `stored` gives the parts of one, or None where it is not packed. After an audit there is none for `rest` times as long as that took."""

    def __init__(self, torch, form, length, numbers, stored, rest=REST, clock=time.monotonic):
        self._torch = torch
        self._form = form
        self._length = length  # of the data set
        self._numbers = numbers
        self._stored = stored
        self._rest = rest
        self._clock = clock
        self._loader = None  # a twin: it has this epoch's data set
        self._data, self._collate = weakly(None), None
        self._known = None  # what the data set looked like when its samples were last found unchanged
        self.epochs = self._news = 0
        self._is_must = True
        self._until = self._distance = FIRST_AUDIT
        self._ended = self._took = 0.0

    def begin(self, loader):
        """An epoch begins. A data set that looks different is audited now, others at the first batch."""
        if len(loader.dataset) != self._length:
            return "the data set changes: it has %d samples, and had %d" % (len(loader.dataset), self._length)
        self._loader = twin_of(self._torch, loader)
        self._data, self._collate = weakly(loader.dataset), loader.collate_fn
        self.epochs += 1
        self._until = 1
        self._is_must = self.epochs <= MUST_EPOCHS
        now = self._look()
        if self.epochs == 1:
            self._known = now
        if now == self._known:
            return ""
        self._is_must = False
        self._news += 1
        return self._compare([self._numbers[place] for place in spread(len(self._numbers), self._news)], is_news=True)

    def batch(self, indices):
        """These samples are handed out: one of them is compared now and then."""
        self._until -= 1
        if not self._is_must and (self._until > 0 or self._clock() - self._ended < self._rest * self._took):
            return ""
        self._is_must = False
        self._distance = min(2 * self._distance, RAREST_AUDIT)
        self._until = self._distance
        return self._compare([int(indices[len(indices) // 2])])

    def _look(self):
        return fingerprint(self._torch, self._data(), self._collate)

    def _compare(self, indices, is_news=False):
        """What fetching itself changes in the data set is no news later; what the program has changed during an epoch is."""
        start = self._clock()
        is_known = is_news or self._look() == self._known
        why = self._why_changed(indices)
        if is_known:
            self._known = self._look()
        self._ended = self._clock()
        self._took = self._ended - start
        return why

    def _why_changed(self, indices):
        before = RandomState(self._torch, reachable(self._torch, self._data(), self._collate))
        why = next(filter(None, map(self._why_sample_changed, indices)), "")
        return "its samples are drawn at random by now" if before.put_back() and not why else why

    def _why_sample_changed(self, index):
        then = self._stored(index)
        if then is None:
            return ""
        changes = "sample %d is not what it was: the data set changes" % index
        try:
            now = self._form.parts(fetch(self._torch, self._loader, [index]), 1)
        except Refused:
            return changes
        except Exception as error:
            return "fetching sample %d again raised %s" % (index, type(error).__name__)
        return "" if is_same(self._torch, now, then) else changes
