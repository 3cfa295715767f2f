"""Looks every millisecond at which line the training's thread is, inside windows of causes only."""

import sys
import threading
import time

FRAME_LIMIT = 16
SEARCH_LIMIT = 100  # frames searched for the user's line when the innermost ones are all a library's
PERIOD_S = 0.001
SHORT_PERIOD_S = 0.0005
SHORT_STEP_NS = 5_000_000
SWITCH_INTERVAL_S = 0.0002  # Python's 5 ms would let a busy thread keep the sampler waiting for whole steps


class Sampler:
    """A thread that samples another one."""

    def __init__(self, sites, record, thread, step_ns):
        self._sites = sites
        self._record = record
        self._target = thread
        self._period_s = SHORT_PERIOD_S if step_ns < SHORT_STEP_NS else PERIOD_S
        self._stacks = {}
        self._running = False
        self._thread = None
        self._old_interval = None

    def start(self):
        """Begins; the interpreter's switch interval is lowered until the end."""
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
                frame = sys._current_frames().get(self._target)
                if frame is None or not self._running:
                    continue
                stack = self._stack_id(frame)
                del frame
                self._record(stack)
        except Exception:
            self._running = False  # a window without samples is no reason to end anything

    def _stack_id(self, frame):
        key, frames = self._walk(frame)
        number = self._stacks.get(key)
        if number is None:
            number = self._stacks[key] = self._sites.text("\n".join(self._sites.describe(f) for f in frames))
        return number

    def _walk(self, frame):
        """The innermost frames, and behind them the user's own one when it is not among these."""
        key, frames, found = [], [], False
        while frame is not None and len(frames) < FRAME_LIMIT:
            self._take(frame, key, frames)
            found = found or self._sites.is_user(frame.f_code.co_filename)
            frame = frame.f_back
        for _ in range(SEARCH_LIMIT if not found else 0):
            if frame is None:
                break
            if self._sites.is_user(frame.f_code.co_filename):
                self._take(frame, key, frames)
                break
            frame = frame.f_back
        return tuple(key), frames

    @staticmethod
    def _take(frame, key, frames):
        key.append(id(frame.f_code))
        key.append(frame.f_lasti)
        frames.append(frame)
