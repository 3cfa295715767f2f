"""The random numbers of a program, for those who run its code out of turn."""

import contextlib
import random
import sys


class RandomState:
    """The states of all generators that a program uses without naming one, and of those among `things` of its own."""

    def __init__(self, torch, things=()):
        numpy = getattr(sys.modules.get("numpy"), "random", None)
        functions = [(torch.get_rng_state, torch.set_rng_state), (random.getstate, random.setstate), *([(numpy.get_state, numpy.set_state)] if numpy is not None else [])]
        own = [functions_of(torch, numpy, thing) for thing in things]
        self._on_cpu = [Generator(*pair) for pair in functions + own if pair is not None]
        self._on_gpu = Generator(torch.cuda.get_rng_state, torch.cuda.set_rng_state) if torch.cuda.is_initialized() else None

    def is_drawn_from(self):
        """Whether one of those on the CPU is another since then."""
        return any(generator.is_another() for generator in self._on_cpu)

    def put_back(self):
        """As if nothing had been drawn; whether anything was on the CPU."""
        if self._on_gpu is not None and self._on_gpu.is_another():
            self._on_gpu.put_back()
        others = [generator for generator in self._on_cpu if generator.is_another()]
        for generator in others:
            generator.put_back()
        return bool(others)


@contextlib.contextmanager
def gpu_draws_from_a_copy(torch):
    """What is drawn on the GPU meanwhile leaves the program's generator alone. To set that back would also have cuDNN make new memory for what it drops between recurrent
    layers, and a captured pass would go on with the memory that is free by then."""
    if not torch.cuda.is_initialized() or not can_draw_from_a_copy(torch):
        yield
        return
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    own = generator.graphsafe_get_state()
    generator.graphsafe_set_state(generator.clone_state())
    try:
        yield
    finally:
        generator.graphsafe_set_state(own)


def can_draw_from_a_copy(torch):
    """Since torch 2.4."""
    return hasattr(torch.Generator, "graphsafe_set_state")


class Generator:
    """The state of one, which two functions tell and set."""

    def __init__(self, get, set_):
        self._get, self._set = get, set_
        self._state = get()
        self._key = key_of(self._state)

    def is_another(self):
        return key_of(self._get()) != self._key

    def put_back(self):
        self._set(self._state)


def functions_of(torch, numpy, thing):
    """Those that tell and set the state of a generator; None for anything else."""
    if isinstance(thing, torch.Generator):
        return thing.get_state, thing.set_state
    if isinstance(thing, random.Random) and not isinstance(thing, random.SystemRandom):
        return thing.getstate, thing.setstate
    if numpy is not None and isinstance(thing, numpy.RandomState):
        return thing.get_state, thing.set_state
    if numpy is not None and isinstance(thing, numpy.Generator):
        bits = thing.bit_generator
        return lambda: bits.state, lambda state: setattr(bits, "state", state)
    return None


def key_of(state):
    """What can be compared."""
    if isinstance(state, dict):
        return tuple((name, key_of(value)) for name, value in state.items())
    if hasattr(state, "__array__"):  # of torch or NumPy
        return bytes(state.numpy() if hasattr(state, "numpy") else state)
    return tuple(map(key_of, state)) if isinstance(state, tuple) and any(map(lambda part: hasattr(part, "__array__"), state)) else state
