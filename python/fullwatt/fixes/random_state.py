"""The random numbers of a program, for those who run its code out of turn."""

import random
import sys


class RandomState:
    """The states of all generators on the CPU that a program uses without naming one."""

    def __init__(self, torch):
        self._torch = torch
        self._state = self._now()

    def is_drawn_from(self):
        """Whether it is another since then."""
        return key_of(self._state) != key_of(self._now())

    def put_back(self):
        """As if nothing had been drawn; whether anything was."""
        if not self.is_drawn_from():
            return False
        for_torch, for_python, for_numpy = self._state
        self._torch.set_rng_state(for_torch)
        random.setstate(for_python)
        if for_numpy is not None:
            sys.modules["numpy"].random.set_state(for_numpy)
        return True

    def _now(self):
        numpy = sys.modules.get("numpy")
        return self._torch.get_rng_state(), random.getstate(), numpy.random.get_state() if numpy is not None else None


def key_of(state):
    """What can be compared."""
    for_torch, for_python, for_numpy = state
    return bytes(for_torch.numpy()), for_python, (for_numpy[1].tobytes(), for_numpy[2:]) if for_numpy is not None else None
