"""Loaders as the program has written them, for a plan that is refused after they were changed: that is when the first model is called, and by then a loader is read."""

import sys
import weakref

from ..weak import Known


class AsWritten:
    """Remembers what is changed of loaders, and puts it back."""

    def __init__(self, torch, patches):
        self._torch = torch
        self._patches = patches
        self._settings = Known()  # those of the program, by loader
        self._changed = []  # weak references to loaders
        self._grouped = Known()  # loaders whose batches are made otherwise
        self._under_way = None  # weak references to the loader of each iterator of theirs

    def change(self, loader, settings):
        """Puts settings into a loader."""
        own = self._settings.get(loader)
        if own is None:
            own = {}
            self._settings.put(loader, own)
            if not self._changed:
                self._patches.on_restore(self._put_back)
            self._changed.append(weakref.ref(loader))
        for name, value in settings.items():
            own.setdefault(name, vars(loader).get(name))
            vars(loader)[name] = value

    def group(self, loader):
        """The batches of this loader are made otherwise from now on."""
        if self._under_way is None:
            self._under_way = weakref.WeakKeyDictionary()
            self._patches.replace(sys.modules["torch.utils.data.dataloader"]._BaseDataLoaderIter, "__init__", self._noting)
        self._grouped.put(loader, True)
        self.change(loader, {})

    def _noting(self, original):
        def __init__(iterator, loader, *args, **kwargs):
            original(iterator, loader, *args, **kwargs)
            if self._grouped.get(loader):
                self._under_way[iterator] = weakref.ref(loader)

        return __init__

    def _put_back(self):
        """An iterator that is under way keeps its workers, and gives what they have been told to fetch; what it asks for from now on is as written."""
        for loader in filter(None, (reference() for reference in self._changed)):
            own = self._settings.get(loader)
            if own.get("persistent_workers") is False:
                vars(loader)["_iterator"] = None  # else its workers would wait for another epoch
            vars(loader).update(own)
        for iterator, reference in list((self._under_way or {}).items()):
            loader = reference()
            if loader is not None and type(loader.batch_sampler) is self._torch.utils.data.BatchSampler:
                iterator._index_sampler = own = loader.batch_sampler  # of the next epoch, where workers persist
                owner = getattr(iterator, "batches", iterator)
                owner._sampler_iter = regrouped(owner._sampler_iter, own.batch_size, own.drop_last)


def regrouped(batches, size, drop_last):
    """The same samples in batches of another size."""
    left = []
    for batch in batches:
        left.extend(batch)
        while len(left) >= size:
            yield left[:size]
            del left[:size]
    if left and not drop_last:
        yield left
