"""What a model is before a pass, for those who may have to make the pass again."""

from .random_state import RandomState


class State:
    """What a pass over a model may change besides computing: buffers, random numbers, attributes of its modules."""

    def __init__(self, torch, module):
        self._torch = torch
        self._module = module
        self._buffers = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
        self._random, self._on_gpu = RandomState(torch), torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None
        self._attributes = attributes(module)

    def is_changed(self):
        """Whether an attribute of a module has another value now."""
        return attributes(self._module) != self._attributes

    def restore(self):
        """Puts everything back; tells what was changed that a graph would not change again."""
        with self._torch.no_grad():
            for buffer, value in self._buffers:
                buffer.copy_(value)
        if self._on_gpu is not None:
            self._torch.cuda.set_rng_state(self._on_gpu)
        draws = self._random.put_back()
        counts = self.is_changed()
        for part, values in zip(self._module.modules(), self._attributes):
            vars(part).update(values)
        if draws:
            return "it draws random numbers on the CPU"
        return "its modules count or remember something in Python" if counts else ""


def attributes(module):
    """The plain values that each of the modules holds."""
    return [{key: value for key, value in vars(part).items() if isinstance(value, (bool, int, float, str, tuple)) or value is None} for part in module.modules()]
