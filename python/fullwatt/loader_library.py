"""The loader's C interface (fullwatt/engine/loader/loader.h). The interpreter's lock is given away while it works."""

import ctypes

from . import libraries

VERSION = 1
NAME, VARIABLE = "libfullwatt_loader.so", "FULLWATT_LOADER"
FAILED, OVER, BATCH, NOT_YET = -1, 0, 1, 2
ERRORS = (ValueError, FileNotFoundError, PermissionError, OSError)  # base::Error::Kind

_I32, _U32, _I64, _U64 = ctypes.c_int32, ctypes.c_uint32, ctypes.c_int64, ctypes.c_uint64
_POINTER, _TEXT = ctypes.c_void_p, ctypes.c_char_p


class Field(ctypes.Structure):
    """fullwatt_loader_field."""

    _fields_ = [("name", _TEXT), ("dtype", _TEXT), ("shape", ctypes.POINTER(_I64)), ("dimensions", _U32), ("memory", _POINTER)]


class Options(ctypes.Structure):
    """fullwatt_loader_options."""

    _fields_ = [
        ("batch", _I64),
        ("threads", _I32),
        ("ahead", _I32),
        ("shuffled", _I32),
        ("drop_last", _I32),
        ("seed", _U64),
        ("epoch", _U64),
        ("first_batch", _U64),
        ("part", _I32),
        ("parts", _I32),
    ]


class Library:
    """The loaded library; what fails raises with the library's own words."""

    def __init__(self, path):
        library = ctypes.CDLL(path)
        texts, pointers = ctypes.POINTER(_TEXT), ctypes.POINTER(_POINTER)
        version = _bind(library, "version", [], ctypes.c_int)()
        if version != VERSION:
            raise ImportError("%s has version %d, this package needs %d: install both from one build of fullwatt" % (path, version, VERSION))
        self._error = _bind(library, "error", [ctypes.POINTER(ctypes.c_int)], _TEXT)
        self._open_npy = _bind(library, "open_npy", [_TEXT, texts, texts, _U32], _POINTER)
        self._open_images = _bind(library, "open_images", [_TEXT, _I64, _I64], _POINTER)
        self._open_arrays = _bind(library, "open_arrays", [ctypes.POINTER(Field), _U32], _POINTER)
        self.samples = _bind(library, "samples", [_POINTER], _I64)
        self._fields = _bind(library, "fields", [_POINTER, ctypes.POINTER(Field), _U32], _U32)
        self.close = _bind(library, "close", [_POINTER], None)
        self._begin = _bind(library, "begin", [_POINTER, ctypes.POINTER(Options), pointers], _POINTER)
        self._next = _bind(library, "next", [_POINTER, _U32, pointers, pointers, ctypes.POINTER(_I64)], ctypes.c_int)
        self.end = _bind(library, "end", [_POINTER], None)

    def open_npy(self, folder, patterns):
        names = [name.encode() for name in patterns]
        files = [pattern.encode("utf-8", "surrogateescape") for pattern in patterns.values()]
        texts = _TEXT * len(names)
        return self._checked(self._open_npy(folder, texts(*names), texts(*files), len(names)))

    def open_images(self, folder, height, width):
        return self._checked(self._open_images(folder, height, width))

    def open_arrays(self, arrays):
        """Arrays of NumPy by name, in the order of their memory; the caller keeps them."""
        fields = (Field * len(arrays))()
        for field, (name, array) in zip(fields, arrays.items()):
            shape = (_I64 * array.ndim)(*array.shape)
            field.name, field.dtype, field.memory = name.encode(), array.dtype.name.encode(), array.ctypes.data
            field.shape, field.dimensions = ctypes.cast(shape, ctypes.POINTER(_I64)), array.ndim
        return self._checked(self._open_arrays(fields, len(fields)))

    def fields(self, data):
        """(name, dtype's name, shape of a sample) of each field."""
        found = (Field * self._fields(data, None, 0))()
        self._fields(data, found, len(found))
        return [(field.name.decode(), field.dtype.decode(), tuple(field.shape[: field.dimensions])) for field in found]

    def begin(self, data, options, addresses):
        return self._checked(self._begin(data, ctypes.byref(options), (_POINTER * len(addresses))(*addresses)))

    def next(self, batches, wait_ms, fresh, filled, samples):
        state = self._next(batches, wait_ms, fresh, filled, ctypes.byref(samples))
        if state == FAILED:
            raise self._failure()
        return state

    def _checked(self, handle):
        if not handle:
            raise self._failure()
        return ctypes.c_void_p(handle)  # which cannot be pickled into another process, as a number could

    def _failure(self):
        kind = ctypes.c_int()
        text = (self._error(ctypes.byref(kind)) or b"").decode("utf-8", "replace")
        return ERRORS[kind.value](text)


def _bind(library, name, arguments, result):
    function = getattr(library, "fullwatt_loader_" + name)
    function.argtypes = arguments
    function.restype = result
    return function


_loaded = {}


def load():
    """The library of this installation, loaded once."""
    path = libraries.find(NAME, VARIABLE)
    if not path:
        raise ImportError("%s is not beside this package or the program `fullwatt`: install fullwatt again, or set %s to it" % (NAME, VARIABLE))
    if path not in _loaded:
        _loaded[path] = Library(path)
    return _loaded[path]
