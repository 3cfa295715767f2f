"""Does what the recorder asks for after a step: windows, figures, counting, the cached batches, the end."""

import time
from threading import get_ident

from . import settings
from .agent import CEILING, COUNTING, LOSS, PHASES, WINDOW
from .counting import Counter
from .measure import Losses, Memory
from .recorder import AGENT, CAUSES_WINDOW, CLOSE, COUNT, MEASURE, OPEN_CAUSES, OPEN_TIMES, TIMES_WINDOW
from .recorder import CEILING as CEILING_ACTION
from .recorder import COUNTING as COUNTING_FLAG
from .sampler import Sampler


class Actions:
    """The slow things, all of them outside steady steps."""

    def __init__(self, agent, torch, compiler, fetches):
        self._agent = agent
        self._torch = torch
        self._compiler = compiler
        self._fetches = fetches
        self.losses = Losses(agent, torch)
        self.memory = Memory(agent, torch)
        self.graphs = 0  # CUDA graphs that the program captured
        self._sampler = None
        self._counter = None
        self._close_is_due = False
        self._told_steps = 0  # of the open window
        self._pace = (0, 0)  # time and number of the step after which something was done last
        self._step_ns = 0
        agent.at_fork.append(self._forked)
        agent.at_end.append(self.stop_all)

    def perform(self, actions):
        """One method a bit, in an order that lets one window end and another begin."""
        self._learn_pace()
        capturing = self._capturing()
        if actions & CLOSE or self._close_is_due:
            self._close_is_due = capturing
            if not capturing:
                self.close_window()
        if actions & (OPEN_TIMES | OPEN_CAUSES) and capturing:
            self._agent.recorder.postpone()
        elif actions & OPEN_TIMES:
            self._open_window(TIMES_WINDOW)
        elif actions & OPEN_CAUSES:
            self._open_window(CAUSES_WINDOW)
        if actions & MEASURE and not capturing:
            self._measure()
        if actions & COUNT:
            self._start_counting()
        if actions & CEILING_ACTION:
            self._agent.detail |= CEILING

    def _learn_pace(self):
        at_ns, steps = time.perf_counter_ns(), self._agent.steps
        if self._pace[1] and steps > self._pace[1]:
            self._step_ns = (at_ns - self._pace[0]) // (steps - self._pace[1])
        self._pace = (at_ns, steps)

    def tell_settings(self, when):
        """The fact `settings`."""
        values = self._agent.attempt(settings.in_force, self._torch)
        if values:
            self._agent.facts.add("settings", id=when, when=when, values=values)

    def _open_window(self, mode):
        self.tell_settings("window")
        self._fetches.start()
        self._agent.recorder.window_open(mode)
        self._agent.detail |= WINDOW
        self._told_steps = 0
        if mode == CAUSES_WINDOW and self._agent.thread == get_ident():
            self._agent.attempt(self._start_sampler)

    def _start_sampler(self):
        sampler = Sampler(self._agent.sites, self._agent.recorder, self._step_ns)
        sampler.start()
        self._sampler = sampler

    def step_ended(self, optimizers):
        """One step of each optimiser tells the lines of its phases, which takes longer than all else in a window."""
        if not self._agent.detail & WINDOW:
            return
        self._told_steps += 1
        if self._told_steps >= optimizers:
            self._agent.detail += PHASES - WINDOW

    def close_window(self):
        """Ends the window, if one is open."""
        if not self._agent.detail & (WINDOW | PHASES):
            return
        self._agent.detail &= ~(WINDOW | PHASES)
        self._stop_sampler()
        self._fetches.stop()
        self._agent.recorder.window_close()
        self._compiler.tell()

    def lose_window(self):
        """The recorder ends the window itself: another profiler needs its place."""
        if self._agent.detail & (WINDOW | PHASES):
            self._agent.detail &= ~(WINDOW | PHASES)
            self._stop_sampler()
            self._fetches.stop()

    def _stop_sampler(self):
        sampler, self._sampler = self._sampler, None
        if sampler is not None:
            sampler.stop()

    def _measure(self):
        start = time.perf_counter_ns()
        self.losses.collect()
        self.memory.read()
        for look in self._agent.at_look:
            self._agent.attempt(look)
        self._agent.detail |= LOSS
        self._agent.phase(AGENT, start, 0)

    def _start_counting(self):
        reason = self._why_not_count()
        if reason:
            self._agent.facts.add("flops", reason=reason)
            return
        self._agent.recorder.flag(COUNTING_FLAG)
        self._counter = Counter(self._torch, self._agent.patches, lambda: self._agent.in_backward)
        self._counter.start()
        self._agent.detail |= COUNTING

    def _why_not_count(self):
        if self._compiler.has_compiled():
            return "the step is compiled"
        if self.graphs:
            return "the step uses CUDA graphs"
        return "a CUDA graph is being captured" if self._capturing() else ""

    def _capturing(self):
        """Opening or closing a window waits for the GPU, which would break a capture."""
        cuda = self._torch.cuda
        return cuda.is_initialized() and cuda.is_current_stream_capturing()

    def finish_counting(self, step):
        """The counted step is over."""
        counter = self._counter
        if counter is None or not counter.is_on_top():
            return
        self._counter = None
        self._agent.detail &= ~COUNTING
        counter.stop()
        if step is None:
            self._agent.facts.add("flops", reason="the counting was interrupted")
            return
        self._agent.facts.add("flops", **counter.tally.flops_fact(step))
        backends = counter.tally.attention_fact()
        if backends:
            self._agent.facts.add("attention", backend=backends)

    def stop_all(self):
        """Whatever is under way ends now."""
        self._stop_sampler()
        self.finish_counting(None)
        self.close_window()

    def _forked(self):
        sampler, self._sampler = self._sampler, None
        if sampler is not None:
            sampler.forked()
        counter, self._counter = self._counter, None
        if counter is not None and counter.is_on_top():
            counter.stop()
