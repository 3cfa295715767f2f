"""Samples fetched by a loader's own means, but not in its own time: nothing of the program's shows it."""

import copy
import sys
import types

from .fingerprint import has_only_attributes


class Refused(Exception):
    """Why a loader's samples are not cached."""


def fetch(torch, loader, indices):
    """A batch of these samples by the loader's own means, in this process."""
    kind = sys.modules["torch.utils.data.dataloader"]._DatasetKind
    return kind.create_fetcher(loader._dataset_kind, loader.dataset, loader._auto_collation, loader.collate_fn, loader.drop_last).fetch(indices)


def uncollated(loader):
    """What reads samples as the loader does, and leaves them as they are: its batches are lists of them."""
    own = copy.copy(loader)
    vars(own).update(collate_fn=as_they_are)
    return own


def as_they_are(samples):
    return samples


def twin_of(torch, loader):
    """What fetches as the loader does, with a data set of its own: what that opens when it fetches here must not be shared by worker processes that come later. So has it its
    own object that puts samples together, which may count how often it did. It holds neither the loader nor the loader's data set."""
    own = {"dataset": own_copy(torch, loader.dataset), "collate_fn": own_collate(loader.collate_fn)}
    return types.SimpleNamespace(**own, **{name: getattr(loader, name) for name in ("_dataset_kind", "_auto_collation", "drop_last")})


def own_collate(collate):
    """A copy of an object that has only attributes, whatever it does when it is copied itself."""
    if not has_only_attributes(type(collate)):
        return collate
    twin = object.__new__(type(collate))
    vars(twin).update(vars(collate))
    return twin


def own_copy(torch, data, depth=3):
    """A copy that shares what is stored, but not the objects around it."""
    twin = copy.copy(data)
    for name, value in list(vars(twin).items()) if depth > 0 and hasattr(twin, "__dict__") else ():
        if isinstance(value, (list, tuple)) and value and all(is_data_set(torch, item) for item in value):
            vars(twin)[name] = type(value)(own_copy(torch, item, depth - 1) for item in value)
        elif is_data_set(torch, value):
            vars(twin)[name] = own_copy(torch, value, depth - 1)
    return twin


def is_data_set(torch, value):
    return isinstance(value, torch.utils.data.Dataset)
