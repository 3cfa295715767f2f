"""Something known about objects that are not ours, for as long as they live; they need not be hashable."""

import weakref


class Known:
    """Values by object. `values` is a plain dictionary by id(object), for those who are in a hurry; `gone` is called with the value of a dead one."""

    def __init__(self, gone=None):
        self.values = {}
        self._references = {}
        self._gone = gone

    def put(self, thing, value):
        """Remembers a value until the object is gone."""
        key = id(thing)
        self._references[key] = weakref.ref(thing, lambda _: self._forget(key))
        self.values[key] = value

    def get(self, thing):
        """The value, or None."""
        return self.values.get(id(thing))

    def clear(self):
        """Forgets everything."""
        self.values.clear()
        self._references.clear()

    def __len__(self):
        return len(self.values)

    def _forget(self, key):
        self._references.pop(key, None)
        value = self.values.pop(key, None)
        if self._gone is not None and value is not None:
            self._gone(value)


def can_be_weak(thing):
    """Whether it can be referred to without being held; lists and dictionaries cannot."""
    try:
        weakref.ref(thing)
    except TypeError:
        return False
    return True


def weakly(thing):
    """A function that gives it, and does not hold it if that can be."""
    return weakref.ref(thing) if can_be_weak(thing) else lambda: thing
