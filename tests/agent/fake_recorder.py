"""A recorder that only remembers what it is asked, and asks back what a test tells it to."""

import json
import os
import threading
import time

from fullwatt.recorder import BACKWARD, DATA, REHEARSAL


class FakeRecorder:
    """Has the methods of fullwatt.recorder.Recorder. `actions` maps a step's number to what that step returns."""

    python_stack = None

    def __init__(self, folder, actions=None, fail_at=None):
        self._folder = folder
        self._actions = actions or {}
        self._fail_at = fail_at
        self._steps = 0
        self._texts = []
        self._lock = threading.Lock()  # the sampler's thread names places, too

    def _note(self, name, **fields):
        if name == self._fail_at:
            raise RuntimeError("planted in " + name)
        with open(os.path.join(self._folder, "calls-%d.jsonl" % os.getpid()), "a") as file:
            file.write(json.dumps(dict(fields, call=name, at_ns=time.perf_counter_ns())) + "\n")

    def open(self, folder, role, rank):
        self._note("open", role=role, rank=rank)
        return ""

    def phase(self, phase, start, site):
        self._note("phase", phase=phase, start=start, site=self._name(site))

    def step(self, optimizer, start, site):
        self._steps += 1
        self._note("step", optimizer=optimizer, start=start, site=self._name(site), number=self._steps)
        return self._actions.get(self._steps, 0)

    def steady_step(self, optimizer, start, end, samples, data_ns, backward_ns):
        """Remembered as the calls of a step that is not steady."""
        if optimizer == REHEARSAL:
            return 0
        self.samples(samples)
        for phase, length in ((DATA, data_ns), (BACKWARD, backward_ns)):
            if length:
                self.phase(phase, time.perf_counter_ns() - length, 0)
        return self.step(optimizer, time.perf_counter_ns() - (end - start), 0)

    def hook(self, kind, training, original, python_hook, then=None):
        return python_hook

    def samples(self, samples):
        self._note("samples", samples=samples)

    def flag(self, flag):
        self._note("flag", flag=flag)

    def sampler_start(self, period_ns):
        return 1

    def sample(self, stack):
        self._note("sample", stack=self._name(stack))

    def cost(self, nanoseconds):
        self._note("cost", nanoseconds=nanoseconds)

    def record(self, kind, flags, id, start, duration, a, b, c, d):
        text = self._name(id) if kind in (14, 15) else None
        self._note("record", kind=kind, id=id, start=start, duration=duration, a=a, b=b, c=c, d=d, text=text)

    def text(self, text):
        with self._lock:
            if text not in self._texts:
                self._texts.append(text)
            return self._texts.index(text) + 1

    def postpone(self):
        self._note("postpone")

    def window_open(self, mode):
        self._note("window_open", mode=mode)
        return 1

    def window_close(self):
        self._note("window_close")

    def give_way(self, yes, to_whom):
        self._note("give_way", yes=yes, to_whom=to_whom)

    def trouble(self):
        return ""

    def close(self):
        self._note("close")

    def forked(self):
        self._lock = threading.Lock()
        self._note("forked")

    def _name(self, number):
        return self._texts[number - 1] if number else ""
