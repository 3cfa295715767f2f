"""facts-<pid>.jsonl: what the agent knows, one JSON object a line (docs/run-folder.md)."""

import json
import math
import os
import time

KIND_LIMIT = 200  # lines of one kind
BYTE_LIMIT = 1 << 20  # of one process: a run's files stay under 20 MB
TEXT_LIMIT = 500
DEPTH_LIMIT = 6
ITEM_LIMIT = 200


class Facts:
    """Keeps facts until the run folder's file is opened, then appends them; a file that fails ends it silently."""

    def __init__(self, folder):
        self._folder = folder
        self._waiting = []
        self._file = None
        self._off = False
        self._counts = {}
        self._bytes = 0

    def add(self, kind, **fields):
        """Writes one fact."""
        count = self._counts.get(kind, 0)
        if self._off or count >= KIND_LIMIT:
            return
        self._counts[kind] = count + 1
        fact = {"kind": kind, "at_ns": time.perf_counter_ns()}
        fact.update(fields)
        line = (json.dumps(clean(fact), ensure_ascii=False) + "\n").encode("utf-8", "replace")
        if self._file is None:
            self._waiting.append(line)
        else:
            self._write(line)

    def open(self, pid):
        """From now on facts are written at once."""
        if self._off or self._file is not None:
            return
        path = os.path.join(self._folder, "facts-%d.jsonl" % pid)
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError:
            self._off = True
            return
        waiting, self._waiting = self._waiting, []
        self._write(b"".join(waiting))

    def forked(self):
        """In a forked child: the file is the parent's."""
        file, self._file = self._file, None
        self._counts.clear()
        self._bytes = 0
        if file is not None:
            os.close(file)

    def _write(self, data):
        self._bytes += len(data)
        try:
            if self._bytes > BYTE_LIMIT:
                raise OSError("too many facts")
            os.write(self._file, data)
        except OSError:
            self._off = True


def clean(value, depth=0):
    """The same as plain JSON: finite numbers, valid Unicode, bounded."""
    if value is None or isinstance(value, (bool, int)):
        return value if not isinstance(value, int) or abs(value) < 1 << 63 else float(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return value[:TEXT_LIMIT].encode("utf-8", "replace").decode("utf-8")
    if depth >= DEPTH_LIMIT:
        return None
    if isinstance(value, dict):
        return {str(key)[:TEXT_LIMIT]: clean(item, depth + 1) for key, item in list(value.items())[:ITEM_LIMIT]}
    if isinstance(value, (list, tuple)):
        return [clean(item, depth + 1) for item in value[:ITEM_LIMIT]]
    if isinstance(value, os.PathLike):
        return clean(os.fspath(value), depth + 1)
    return clean(described(value), depth + 1)


def described(value):
    """Some text for what JSON does not know."""
    try:
        return str(value)
    except Exception:
        return type(value).__name__
