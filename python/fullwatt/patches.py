"""Replaces functions of other modules, and puts them back."""

import functools
import types


class Patches:
    """What was replaced, by group, so that each group can be undone on its own."""

    def __init__(self):
        self._done = []

    def replace(self, owner, name, make, group="always"):
        """Replaces `owner.name` by `make(original)`; an owner without that name is left alone."""
        inherited = name not in vars(owner)
        original = getattr(owner, name, None)
        if original is None:
            return None
        replacement = make(original)
        if isinstance(replacement, types.FunctionType) and not hasattr(replacement, "__wrapped__"):
            functools.update_wrapper(replacement, original)
        setattr(owner, name, replacement)
        self._done.append((group, owner, name, None if inherited else original, replacement))
        return replacement

    def quicken(self, owner, name, hook, group="always"):
        """Puts the recorder's `hook(original, ours)` over a function of ours, unless somebody else has replaced that since."""
        ours = vars(owner).get(name)
        if any(entry[4] is ours for entry in self._done if ours is not None):
            self.replace(owner, name, lambda _: hook(ours.__wrapped__, ours), group)

    def on_restore(self, undo, group="always"):
        """Has `undo()` called when the group is undone."""
        self._done.append((group, None, None, undo, None))

    def restore(self, group=None):
        """Undoes one group, or all, each whatever became of the others, and raises the first error; what somebody else has replaced since stays theirs."""
        keep, undo, errors = [], [], []
        for entry in self._done:
            (undo if group is None or entry[0] == group else keep).append(entry)
        self._done = keep
        for entry in reversed(undo):
            try:
                self._restore(*entry[1:])
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def has(self, group):
        """Whether anything of the group is in force."""
        return any(entry[0] == group for entry in self._done)

    @staticmethod
    def _restore(owner, name, original, replacement):
        if owner is None:
            original()
        elif vars(owner).get(name) is replacement:
            if original is None:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
