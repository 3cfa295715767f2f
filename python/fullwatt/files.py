"""The configuration files that the program opened before its first step."""

import builtins
import io
import os
import sys

from .agent import BEFORE_TRAINING

ENDINGS = (".yaml", ".yml", ".json", ".toml", ".ini", ".cfg", ".conf", ".py")
FILE_LIMIT = 64
CALL_LIMIT = 20_000  # a program that opens that many files is reading its data
BYTE_LIMIT = 1 << 20
# Python's own readers of source code: who uses these reads code, not a configuration.
SOURCE_READERS = ("tokenize", "linecache", "inspect", "runpy", "pkgutil", "importlib")
OURS = __name__.split(".")[0]  # reads plans, and scripts for their checksums
SYSTEM_FOLDERS = ("/proc/", "/sys/", "/dev/", "/etc/", "/usr/", "/lib/", "/run/")


def install(agent):
    """Hooks open(); io.open, which pathlib uses, is the same function."""
    seen = Seen(agent)
    original = io.open
    if builtins.open is not original:
        return

    def open(file, mode="r", *args, **kwargs):
        result = original(file, mode, *args, **kwargs)
        if mode in ("r", "rb", "rt") and isinstance(file, (str, os.PathLike)):
            agent.attempt(seen.look, file, sys._getframe(1))
        return result

    for owner in (builtins, io):
        agent.patches.replace(owner, "open", lambda _: open, BEFORE_TRAINING)


class Seen:
    """Each file once."""

    def __init__(self, agent):
        self._agent = agent
        self._paths = set()
        self._calls = 0

    def look(self, file, frame):
        """A file was opened by the code of this frame."""
        self._calls += 1
        if self._calls > CALL_LIMIT or len(self._paths) >= FILE_LIMIT:
            return
        name = os.fspath(file)
        if not isinstance(name, str) or not name.endswith(ENDINGS):
            return
        path = os.path.abspath(name)
        if path in self._paths or not self._is_configuration(path, frame):
            return
        self._paths.add(path)
        self._agent.facts.add("config_file", path=path, site=self._agent.sites.here())

    def _is_configuration(self, path, frame):
        reader = frame.f_globals.get("__name__", "").split(".")[0]
        if reader == OURS or path.endswith(".py") and reader in SOURCE_READERS:
            return False
        if path.startswith(SYSTEM_FOLDERS) or path.startswith(os.path.expanduser("~/.cache/")):
            return False
        return self._agent.sites.is_user(path) and os.path.getsize(path) <= BYTE_LIMIT
