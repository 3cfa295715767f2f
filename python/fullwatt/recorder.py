"""The recorder's C interface (fullwatt/record/recorder/recorder.h) and the numbers of its format (fullwatt/record/format.hpp)."""

import ctypes

VERSION = 2
MOST_UNKNOWN = 64  # addresses of code that are asked for at once

TRAINER, WORKER = 0, 1
DATA, BACKWARD, OPTIMIZER, SAVE, GARBAGE, EVALUATION, COMPILE, AGENT = range(8)
MEMORY, LOSS, FETCH, MARK, TROUBLE = 11, 12, 13, 14, 15
EVALUATED, SAVED, COMPILED, MEASURED, CEILING_STEP, COUNTING = 8, 16, 32, 64, 128, 256
OPEN_TIMES, OPEN_CAUSES, CLOSE, MEASURE, STOP, COUNT, CEILING, ENOUGH = 1, 2, 4, 8, 16, 32, 64, 128
TIMES_WINDOW, CAUSES_WINDOW = 1, 2
REHEARSAL = 0xFFFFFFFF  # the number of an optimiser that makes no step
NEXT_BATCH, BACKWARD_PASS, BEFORE_STEP, AFTER_STEP = range(4)  # the hooks that the recorder has, too

_INT, _U32, _U64 = ctypes.c_int, ctypes.c_uint32, ctypes.c_uint64
# ctypes turns a Python integer into a pointer twice as fast as into an exact type, and the 64-bit calling conventions of
# Linux pass both alike. Used for frequent calls.
_FAST = ctypes.c_void_p


class Training(ctypes.Structure):
    """What the hooks share, those in Python and those of the recorder: fullwatt_training of recorder.h."""

    _fields_ = [
        ("detail", _U32),
        ("in_backward", _U32),
        ("inner_steps", _U32),
        ("is_rehearsal", _U32),
        ("thread", _U64),
        ("stepping", _U64),
        ("step_start", _U64),
        ("steps", _U64),
        ("data_ns", _U64),
        ("backward_ns", _U64),
        ("taken", _U64),
        ("batch", _U64),
        ("credits", ctypes.c_int64),
        ("optimizers", _U64 * 8),
    ]


class Recorder:
    """The loaded library. Short calls keep the interpreter's lock: giving it away could cost a whole switch interval."""

    def __init__(self, path):
        held, free = ctypes.PyDLL(path), ctypes.CDLL(path)
        self._text = _bind(held, "fullwatt_text", [ctypes.c_char_p, _U32], _U32)
        self._trouble = _bind(held, "fullwatt_trouble", [], ctypes.c_char_p)
        self._open = _bind(free, "fullwatt_open", [ctypes.c_char_p, _INT, _INT], _INT)
        self._yield = _bind(free, "fullwatt_yield", [_INT, ctypes.c_char_p], None)
        self.version = _bind(held, "fullwatt_version", [], _INT)
        self.phase = _bind(held, "fullwatt_phase", [_FAST, _FAST, _FAST], None)
        self.step = _bind(held, "fullwatt_step", [_FAST, _FAST, _FAST], _U32)
        self.steady_step = _bind(held, "fullwatt_steady_step", [_FAST] * 6, _U32)
        self._hook = _bind(held, "fullwatt_python_hook", [_INT, ctypes.c_void_p] + [ctypes.py_object] * 3, ctypes.py_object)
        self.samples = _bind(held, "fullwatt_samples", [_FAST], None)
        self.sample = _bind(held, "fullwatt_sample", [_FAST], None)
        self.sampler_start = _bind(held, "fullwatt_sampler_start", [_U64], _INT)
        self._sampler_stop = _bind(free, "fullwatt_sampler_stop", [], _U32)
        self._sampler_unknown = _bind(held, "fullwatt_sampler_unknown", [ctypes.POINTER(_U64), _U32], _U32)
        self.sampler_tell = _bind(held, "fullwatt_sampler_tell", [ctypes.py_object], None)
        self._sampler_stack = _bind(held, "fullwatt_sampler_stack", [_U32], ctypes.py_object)
        self._sampler_write = _bind(held, "fullwatt_sampler_write", [ctypes.POINTER(_U32)], None)
        self.python_stack = None
        if _bind(held, "fullwatt_python_stack_known", [], _INT)():
            self.python_stack = _bind(held, "fullwatt_python_stack", [ctypes.c_ulong], ctypes.py_object)
        self.flag = _bind(held, "fullwatt_flag", [_U32], None)
        self.cost = _bind(held, "fullwatt_cost", [_U64], None)
        self.record = _bind(held, "fullwatt_record", [_INT, _INT, _U32, _U64, _U64, _U64, _U64, _U32, _U32], None)
        self.window_open = _bind(free, "fullwatt_window_open", [_INT], _INT)
        self.window_close = _bind(free, "fullwatt_window_close", [], None)
        self.postpone = _bind(held, "fullwatt_postpone", [], None)
        self.close = _bind(free, "fullwatt_close", [], None)
        self.forked = _bind(held, "fullwatt_forked", [], None)

    def open(self, folder, role, rank):
        """Opens the spool; an empty text, or why it could not."""
        if self.version() != VERSION:
            return "the recorder has version %d, the agent needs %d" % (self.version(), VERSION)
        return "" if self._open(folder.encode("utf-8", "surrogateescape"), role, rank) == 0 else self.trouble()

    def hook(self, kind, training, original, python_hook, then=None):
        """The recorder's hook for the steady state, which leaves the rest to the one in Python; that one itself where there is no other."""
        try:
            return self._hook(kind, ctypes.addressof(training), original, python_hook, then)
        except ValueError:  # a null pointer
            return python_hook

    def sampler_stop(self, name, tell_unknown=None):
        """Ends the sampling that sampler_start began; `name` gives the text id of a stack. `tell_unknown` is given the addresses of code that is not known, and
        calls sampler_tell for what it finds."""
        count, unknown = self._sampler_stop(), (_U64 * MOST_UNKNOWN)()
        found = self._sampler_unknown(unknown, MOST_UNKNOWN)
        if found and tell_unknown is not None:
            tell_unknown(list(unknown[:found]))
        self._sampler_write((_U32 * count)(*[name(self._sampler_stack(number)) for number in range(count)]))

    def trouble(self):
        """What went wrong last."""
        return (self._trouble() or b"").decode("utf-8", "replace")

    def text(self, text):
        """The id of a text in the spool."""
        data = text.encode("utf-8", "replace")
        return self._text(data, len(data))

    def give_way(self, yes, to_whom):
        """Another profiler takes or leaves CUPTI's seat."""
        self._yield(1 if yes else 0, to_whom.encode("utf-8", "replace"))


def _bind(library, name, arguments, result):
    function = getattr(library, name)
    function.argtypes = arguments
    function.restype = result
    return function
