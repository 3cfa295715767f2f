"""Measures what the hooks cost a steady step, in the process itself: the real hooks around functions that do nothing."""

import json
from time import perf_counter_ns as now

from .hooks import backward, loader, optimizer
from .recorder import AFTER_STEP, BACKWARD_PASS, BEFORE_STEP, NEXT_BATCH, REHEARSAL, Training

ROUNDS = 3
CACHE_BYTES = 4 << 20
SOURCE = "def f(a, b=1, *c, **d):\n    with a as e:\n        return [x for x in e if x > b] or {k: v for k, v in d.items()}\n" * 4


class Shadow(Training):
    """The agent's place in the measured hooks: the same calls of the recorder, counted as the agent's own time."""

    def __init__(self, agent, optimizer):
        super().__init__(is_rehearsal=1, thread=agent.thread, credits=1 << 60)
        self.optimizers[0] = id(optimizer)
        self.steady_step = agent.recorder.steady_step


class Nothing:
    """Stands for what the hooks call only outside the steady state."""

    def __getattr__(self, name):
        return None


def of_step(agent, batches_per_step, backwards_per_step):
    """Nanoseconds of one step's hooks, from the medians of a few rounds."""
    optimizer_like, hook = object(), agent.recorder.hook
    shadow = Shadow(agent, optimizer_like)
    next_batch = hook(NEXT_BATCH, shadow, _nothing, loader.make_next(shadow, _nothing, Nothing()))
    run_backward = hook(BACKWARD_PASS, shadow, _nothing, backward.make_backward(shadow, _nothing, Nothing()))
    before, after = optimizer.make_hooks(shadow, {id(optimizer_like): REHEARSAL}, Nothing())
    before, after = hook(BEFORE_STEP, shadow, None, before), hook(AFTER_STEP, shadow, None, after)
    arguments, options = (optimizer_like,), {}
    batches, backwards, steps = [], [], []
    memory = bytes(CACHE_BYTES)
    for _ in range(ROUNDS):
        _forget_caches(memory)
        start = now()
        next_batch(None)
        fetched = now()
        run_backward(None)
        computed = now()
        before(optimizer_like, arguments, options)
        after(optimizer_like, arguments, options)
        steps.append(now() - computed)
        backwards.append(computed - fetched)
        batches.append(fetched - start)
    return int(_median(batches) * batches_per_step + _median(backwards) * backwards_per_step + _median(steps))


def _median(values):
    return sorted(values)[len(values) // 2]


def _forget_caches(memory):
    """In a training the hooks are called out of the cold: the step between them has used the processor's caches for itself."""
    bytearray(memory)
    compile(SOURCE, "<fullwatt>", "exec")
    json.loads(json.dumps({"text": SOURCE}))


def _nothing(*args, **kwargs):
    return None
