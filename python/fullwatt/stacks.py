"""Stacks of a run that hangs: `fullwatt run` sends a signal, Python's faulthandler writes every thread's stack to a file.

The file's presence says that the signal may be sent: to a process without the handler it would be deadly.
"""

import faulthandler
import os
import signal
import threading


def signal_number():
    """SIGRTMIN+11: nothing known uses it."""
    return signal.SIGRTMIN + 11


def install(agent):
    """Registers the handler for this process; returns the path of its file, or None."""
    if threading.current_thread() is not threading.main_thread():
        return None
    path = os.path.join(agent.folder, "stacks-%d.txt" % os.getpid())
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        faulthandler.register(signal_number(), file=file, all_threads=True, chain=False)
    except Exception:
        os.close(file)
        os.unlink(path)
        return None
    return path


def remove_if_empty(path):
    """A process that ends in order leaves no empty file. The handler stays: a signal may be on its way."""
    if path is not None and os.path.exists(path) and os.path.getsize(path) == 0:
        os.unlink(path)
