"""Where a trial cannot have a view of the file system of its own (fullwatt/tune/sandbox.hpp), what Python writes goes to a scratch folder instead.

The program finds there what it wrote, and does not find what it removed. What does not go through Python ends the trial (fullwatt/tune/lookout.hpp).
"""

import builtins
import errno
import io
import os
import shutil

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
REAL = ("/dev/", "/proc/")


def install(agent, watch, folder):
    """Hooks the functions of Python that take a path; gives the places for those of torch."""
    places, patches = Places(folder, [agent.folder, os.environ.get("TMPDIR", folder), *os.environ.get("FULLWATT_UNDIVERTED", folder).split(":")]), agent.patches
    patches.replace(builtins, "open", lambda original: diverted_open(original, places))
    patches.replace(io, "open", lambda _: builtins.open)
    patches.replace(os, "open", lambda original: diverted_os_open(original, places))
    for name in ("stat", "lstat", "chdir", "access", "readlink"):
        patches.replace(os, name, lambda original: reading(original, places))
    for name in ("chmod", "chown", "utime", "setxattr"):
        patches.replace(os, name, lambda original: changing(original, places))
    for name in ("remove", "unlink", "rmdir"):
        patches.replace(os, name, lambda original: removing(original, places))
    for name in ("rename", "replace"):
        patches.replace(os, name, lambda original: moving(original, places))
    patches.replace(os, "getcwd", lambda original: lambda: places.name(original()))
    for name in ("mkdir", "mkfifo", "mknod"):
        patches.replace(os, name, lambda original: making(original, places))
    patches.replace(os, "symlink", lambda original: linking(original, places))
    patches.replace(os, "link", lambda _: copying)
    patches.replace(os, "truncate", lambda original: with_path(original, 0, "path", lambda path: places.to_write(path, keep=True)))
    patches.replace(os, "listdir", lambda original: lambda path=".": places.list(original, path))
    patches.replace(os, "scandir", lambda original: lambda path=".": places.list(original, path, lambda entry: entry.name, Entries))
    for name in ("safetensors.torch", "safetensors.numpy"):
        watch.when_imported(name, lambda module: agent.guard(install_safetensors, module, agent, places))
    return places


def install_torch(torch, agent, places):
    """torch writes and reads some files without Python."""
    replace = agent.patches.replace
    replace(torch, "save", lambda original: with_path(original, 1, "f", places.to_write))
    replace(torch.jit.RecursiveScriptModule, "save", lambda original: with_path(original, 1, "f", places.to_write))
    replace(torch.jit, "load", lambda original: with_path(original, 0, "f", places.to_read))


def install_safetensors(module, agent, places):
    """So does what most language models are saved with."""
    agent.patches.replace(module, "save_file", lambda original: with_path(original, 1, "filename", places.to_write))
    agent.patches.replace(module, "load_file", lambda original: with_path(original, 0, "filename", places.to_read))


class Places:
    """Which path stands for which."""

    def __init__(self, folder, real):
        self._folder = os.path.abspath(folder)
        self._real = tuple(os.path.abspath(path) + os.sep for path in real) + REAL
        self._lstat, self._readlink, self._mkdir, self._open = os.lstat, os.readlink, os.mkdir, builtins.open
        self._gone = set()  # what the program removed of what was there before

    def name(self, path, dir_fd=None):
        """As the program means it: a name in a folder that it has opened, or a place in the scratch folder."""
        if not is_path(path):
            return path
        if dir_fd is not None:
            path = os.path.join(self._readlink("/proc/self/fd/%d" % dir_fd), os.fsdecode(path))
        path = os.path.abspath(os.fsdecode(os.fspath(path)))
        return path[len(self._folder):] if path.startswith(self._folder + os.sep) else path

    def to_read(self, path):
        """The diverted one when it was written, or when the real one is to be gone."""
        diverted = self._diverted(path)
        if not diverted or isinstance(path, bytes):
            return path
        real = self.name(path)  # the program may be in a folder that is a diverted one
        return diverted if self._is_there(diverted) or real in self._gone else real

    def to_write(self, path, keep=False):
        """A path in the scratch folder; with `keep` its file begins as the real one is."""
        diverted = self._diverted(path)
        if not diverted:
            return path
        self._make(os.path.dirname(diverted))
        real = self.name(path)
        if keep and not self._is_there(diverted) and real not in self._gone and os.path.isfile(real):
            with self._open(real, "rb") as source, self._open(diverted, "wb") as target:
                shutil.copyfileobj(source, target)
        return diverted

    def is_real(self, path):
        """Whether it is one that was there before, which no trial may change."""
        return self.to_read(path) == path and bool(self._diverted(path)) and self._is_there(path)

    def remove(self, path):
        """Has the real one, where there is one, not found any more."""
        if self._diverted(path) and self._is_there(self.name(path)):
            self._gone.add(self.name(path))

    def list(self, original, path, name_of=lambda entry: entry, form=list):
        """What is in a folder, by `original`: what was there before and is not gone, and what was written."""
        path = self.name(".", path) if isinstance(path, int) else path
        diverted = self._diverted(path)
        if not diverted or isinstance(path, bytes):
            return original(self.to_read(path))
        real, is_new = self.name(path), self._is_there(diverted)
        if real in self._gone or not self._is_there(real):
            return original(diverted if is_new else path)
        if not is_new and not self._gone:
            return original(path)
        found = {name_of(entry): entry for entry in original(real) if os.path.join(real, name_of(entry)) not in self._gone}
        found.update((name_of(entry), entry) for entry in (original(diverted) if is_new else ()))
        return form(found.values())

    def _diverted(self, path):
        """Where it goes; empty for what is written for real, and for what is no path."""
        real = self.name(path)
        return "" if not is_path(path) or (real + os.sep).startswith(self._real) else self._folder + real

    def _make(self, folder):
        if self._is_there(folder):
            return
        self._make(os.path.dirname(folder))
        try:
            self._mkdir(folder)
        except FileExistsError:
            pass  # another process was faster

    def _is_there(self, path):
        try:
            self._lstat(path)
            return True
        except OSError:
            return False


class Entries:
    """As os.scandir gives them."""

    def __init__(self, entries):
        self._left = iter(list(entries))

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._left)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._left = iter(())


def is_path(file):
    """Not a descriptor."""
    return isinstance(file, (str, bytes, os.PathLike))


def with_path(original, place, keyword, to):
    """A function whose argument of that place or keyword is another path."""

    def call(*args, **kwargs):
        if keyword in kwargs:
            kwargs[keyword] = to(kwargs[keyword])
        elif len(args) > place:
            args = args[:place] + (to(args[place]),) + args[place + 1:]
        return original(*args, **kwargs)

    return call


def diverted_open(original, places):
    def open(file, mode="r", *args, **kwargs):
        writes = any(letter in mode for letter in "wax+")
        return original(places.to_write(file, keep="w" not in mode) if writes else places.to_read(file), mode, *args, **kwargs)

    return open


def diverted_os_open(original, places):
    def open(path, flags, mode=0o777, *, dir_fd=None):
        path = places.name(path, dir_fd)
        return original(places.to_write(path, keep=not flags & os.O_TRUNC) if flags & WRITING else places.to_read(path), flags, mode)

    return open


def reading(original, places):
    def look(path, *args, dir_fd=None, **kwargs):
        return original(places.to_read(path if dir_fd is None else places.name(path, dir_fd)), *args, **kwargs)

    return look


def changing(original, places):
    """Only what was written here."""

    def change(path, *args, dir_fd=None, **kwargs):
        path = places.name(path, dir_fd)
        return None if is_path(path) and places.is_real(path) else original(places.to_read(path), *args, **kwargs)

    return change


def removing(original, places):
    """What is real is only not found any more."""

    def remove(path, *, dir_fd=None):
        path = places.name(path, dir_fd)
        if original.__name__ == "rmdir" and os.path.isdir(path) and os.listdir(path):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        if not places.is_real(path):
            original(places.to_read(path))
        places.remove(path)

    return remove


def moving(original, places):
    def move(source, target, *, src_dir_fd=None, dst_dir_fd=None):
        source = places.name(source, src_dir_fd)
        original(places.to_write(source, keep=True), places.to_write(places.name(target, dst_dir_fd)))
        places.remove(source)

    return move


def making(original, places):
    def make(path, *args, dir_fd=None, **kwargs):
        path = places.name(path, dir_fd)
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        return original(places.to_write(path), *args, **kwargs)

    return make


def linking(original, places):
    def link(source, target, target_is_directory=False, *, dir_fd=None):
        target = places.name(target, dir_fd)
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), source, None, target)
        return original(places.to_read(source) if os.path.isabs(source) else source, places.to_write(target))

    return link


def copying(source, target, **_):
    """What is linked to would be written through the link."""
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), source, None, target)
    shutil.copyfile(source, target)
