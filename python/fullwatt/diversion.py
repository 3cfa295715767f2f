"""Where a trial cannot have a view of the file system of its own (fullwatt/tune/sandbox.hpp), what Python writes goes to a scratch folder instead.

The program finds there what it wrote. What it removes or changes of what was there before stays, and what does not go through Python is stopped by the kernel (fullwatt/tune/fence.hpp).
"""

import builtins
import io
import os
import shutil

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
REAL = ("/dev/", "/proc/")


def install(agent, folder):
    """Hooks the functions of Python that take a path."""
    places, patches = Places(folder, [agent.folder, os.environ.get("TMPDIR", folder)]), agent.patches
    patches.replace(builtins, "open", lambda original: diverted_open(original, places))
    patches.replace(io, "open", lambda _: builtins.open)
    patches.replace(os, "open", lambda original: diverted_os_open(original, places))
    for name in ("stat", "lstat", "listdir", "scandir", "chdir"):
        patches.replace(os, name, lambda original: reading(original, places))
    for name in ("remove", "unlink", "rmdir", "chmod", "chown", "utime", "setxattr"):
        patches.replace(os, name, lambda original: changing(original, places))
    for name in ("rename", "replace"):
        patches.replace(os, name, lambda original: moving(original, places))
    patches.replace(os, "mkdir", lambda original: making(original, places))


def install_torch(torch, agent, folder):
    """torch.save writes files without Python."""
    places = Places(folder, [agent.folder])

    def make(original):
        def save(obj, f, *args, **kwargs):
            return original(obj, places.to_write(f, keep=False) if is_path(f) else f, *args, **kwargs)

        return save

    agent.patches.replace(torch, "save", make)


class Places:
    """Which path stands for which."""

    def __init__(self, folder, real):
        self._folder = folder
        self._real = tuple(os.path.abspath(path) + os.sep for path in [folder, *real]) + REAL
        self._exists = os.path.exists
        self._make = os.makedirs

    def to_read(self, path):
        """The diverted one when it was written."""
        diverted = self._diverted(path)
        return diverted if diverted and self._exists(diverted) else path

    def to_write(self, path, keep):
        """A path in the scratch folder; with `keep` its file begins as the real one is."""
        diverted = self._diverted(path)
        if not diverted:
            return path
        self._make(os.path.dirname(diverted), exist_ok=True)
        real = os.path.abspath(os.fspath(path))
        if keep and os.path.isfile(real) and not self._exists(diverted):
            shutil.copyfile(real, diverted)
        return diverted

    def is_protected(self, path):
        """Whether it is one of those that no trial may change."""
        return bool(self._diverted(path))

    def _diverted(self, path):
        """Where it goes; empty for what is written for real."""
        real = os.path.abspath(os.fsdecode(os.fspath(path)))
        return "" if (real + os.sep).startswith(self._real) else self._folder + real


def is_path(file):
    """Not a descriptor."""
    return isinstance(file, (str, bytes, os.PathLike))


def diverted_open(original, places):
    def open(file, mode="r", *args, **kwargs):
        if is_path(file):
            writes = any(letter in mode for letter in "wax+")
            file = places.to_write(file, keep="w" not in mode) if writes else places.to_read(file)
        return original(file, mode, *args, **kwargs)

    return open


def diverted_os_open(original, places):
    def open(path, flags, *args, **kwargs):
        if is_path(path) and kwargs.get("dir_fd") is None:
            path = places.to_write(path, keep=not flags & os.O_TRUNC) if flags & WRITING else places.to_read(path)
        return original(path, flags, *args, **kwargs)

    return open


def reading(original, places):
    def look(path=".", *args, **kwargs):
        return original(places.to_read(path) if is_path(path) and kwargs.get("dir_fd") is None else path, *args, **kwargs)

    return look


def changing(original, places):
    """Only what was written here; what is real stays as it is."""

    def change(path, *args, **kwargs):
        if not is_path(path) or kwargs.get("dir_fd") is not None:
            return original(path, *args, **kwargs)
        there = places.to_read(path)
        return None if places.is_protected(there) else original(there, *args, **kwargs)

    return change


def moving(original, places):
    def move(source, target, *args, **kwargs):
        return original(places.to_write(source, keep=True), places.to_write(target, keep=False), *args, **kwargs)

    return move


def making(original, places):
    def mkdir(path, *args, **kwargs):
        if os.path.lexists(path):
            raise FileExistsError(17, os.strerror(17), path)
        return original(places.to_write(path, keep=False), *args, **kwargs)

    return mkdir
