"""Looks again and again at which line the training's thread is, inside windows of causes only."""

import gc
import sys
import threading
import time
from types import CodeType, FunctionType

FRAME_LIMIT = 16
SEARCH_LIMIT = 120  # frames searched for the user's line when the innermost ones are all a library's
SHORT_STEP_NS = 5_000_000
PERIOD_NS, SHORT_PERIOD_NS = 200_000, 100_000  # of the recorder's own sampling, which the training does not feel
LOCKED_PERIOD_S, SHORT_LOCKED_PERIOD_S = 0.001, 0.0005
SWITCH_INTERVAL_S = 0.0002  # Python's 5 ms would let a busy thread keep the sampler waiting for whole steps


class Sampler:
    """Samples the calling thread: by the recorder, which hardly ever needs the interpreter's lock for it; by a thread of Python where that cannot."""

    def __init__(self, sites, recorder, step_ns):
        self._recorder = recorder
        self._names = Names(sites)
        self._is_short = step_ns < SHORT_STEP_NS
        self._locked = None

    def start(self):
        """Begins."""
        if has_lock() and self._recorder.sampler_start(SHORT_PERIOD_NS if self._is_short else PERIOD_NS) == 0:
            return
        period_s = SHORT_LOCKED_PERIOD_S if self._is_short else LOCKED_PERIOD_S
        self._locked = LockedSampler(self._recorder, self._names.id_of, threading.get_ident(), period_s)
        self._locked.start()

    def stop(self):
        """Ends, and names what was seen."""
        if self._locked is not None:
            self._locked.stop()
        else:
            self._recorder.sampler_stop(self._names.id_of, lambda addresses: tell_unknown(self._recorder, addresses))

    def forked(self):
        """In a child, which has none of the threads."""
        if self._locked is not None:
            self._locked.restore_interval()


SEARCHES = 3  # of all objects, in one process: each takes tenths of a second
_searched = []  # the addresses of each search


def tell_unknown(recorder, addresses):
    """Code that waits for long calls, such as sum() over a list, with the interpreter's lock is never seen with it: it is looked for among all functions."""
    wanted = set(addresses).difference(*_searched)
    if not wanted or len(_searched) == SEARCHES:
        return
    _searched.append(wanted)
    codes = {id(thing.__code__): thing.__code__ for thing in gc.get_objects() if type(thing) is FunctionType and id(thing.__code__) in wanted}
    frame = sys._getframe(1)
    while frame is not None:
        codes.setdefault(id(frame.f_code), frame.f_code)
        frame = frame.f_back
    inner = [constant for code in codes.values() for constant in code.co_consts if isinstance(constant, CodeType)]
    codes.update((id(code), code) for code in inner)
    for address in wanted.intersection(codes):
        recorder.sampler_tell(codes[address])


class Names:
    """The text ids of stacks, each given as code and instruction of its frames."""

    def __init__(self, sites):
        self._sites = sites
        self._ids = {}

    def id_of(self, stack):
        """The id of one; 0 for an empty one."""
        key = self._inner(stack)
        number = self._ids.get(key)
        if number is None and key:
            places = zip(key[::2], key[1::2])
            number = self._ids[key] = self._sites.text("\n".join(self._sites.describe_code(code, at) for code, at in places))
        return number or 0

    def _inner(self, stack):
        """The innermost frames, and behind them the user's own one when it is not among these."""
        inner = stack[:2 * FRAME_LIMIT]
        if any(self._sites.is_user(code.co_filename) for code in inner[::2]):
            return inner
        for place in range(len(inner), len(stack), 2):
            if self._sites.is_user(stack[place].co_filename):
                return inner + stack[place:place + 2]
        return inner


class LockedSampler:
    """A thread of Python that samples another one, and takes the interpreter's lock from it each time."""

    def __init__(self, recorder, id_of, thread, period_s):
        self._record = recorder.sample
        self._stack_of = recorder.python_stack or stack_of
        self._id_of = id_of
        self._target = thread
        self._period_s = period_s
        self._running = False
        self._thread = None
        self._old_interval = None

    def start(self):
        """Begins; the interpreter's switch interval is lowered until the end."""
        if not has_lock():
            raise RuntimeError("no lines of Python work, since this Python has no interpreter lock: its frames move while they are read")
        self._running = True
        self._old_interval = sys.getswitchinterval()
        if self._old_interval > SWITCH_INTERVAL_S:
            sys.setswitchinterval(SWITCH_INTERVAL_S)
        self._thread = threading.Thread(target=self._run, name="fullwatt-sampler", daemon=True)
        self._thread.start()

    def stop(self):
        """Ends, and waits for the thread."""
        self._running = False
        self.restore_interval()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._thread = None

    def restore_interval(self):
        """Puts the switch interval back, unless the program has set its own meanwhile."""
        old, self._old_interval = self._old_interval, None
        if old is not None and abs(sys.getswitchinterval() - SWITCH_INTERVAL_S) < 1e-6:
            sys.setswitchinterval(old)

    def _run(self):
        try:
            while self._running:
                time.sleep(self._period_s)
                stack = self._stack_of(self._target)
                if not stack or not self._running:
                    continue
                self._record(self._id_of(stack))
        except Exception:
            self._running = False  # a window without samples is no reason to end anything


def has_lock():
    """Whether only one thread of Python runs at a time; a free-threaded build may differ."""
    return getattr(sys, "_is_gil_enabled", lambda: True)()


def stack_of(thread):
    """What the recorder's python_stack does, for a Python older than 3.11, whose frames outlive their execution."""
    frame, stack = sys._current_frames().get(thread), []
    for _ in range(SEARCH_LIMIT):
        if frame is None:
            break
        stack += (frame.f_code, frame.f_lasti)
        frame = frame.f_back
    return tuple(stack)
