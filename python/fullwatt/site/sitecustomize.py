"""Python runs this before the program because `fullwatt run` put this folder on PYTHONPATH."""

import os
import sys


def _start_agent(package_parent):
    """Starts the agent; whatever goes wrong, the program starts all the same."""
    sys.path.insert(0, package_parent)
    try:
        from fullwatt import entry

        entry.begin()
    except Exception as error:
        try:
            sys.stderr.write("fullwatt: the agent could not start: %r; the program goes on\n" % (error,))
        except Exception:
            pass
    finally:
        if package_parent in sys.path:
            sys.path.remove(package_parent)


def _leave_path(folder):
    """The program sees the search path it would have without us."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != folder]


def _run_next():
    """Python looks for one sitecustomize only: the next one on the path is the user's own."""
    ours = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if getattr(error, "name", None) != "sitecustomize":
            raise
        if ours is not None:
            sys.modules["sitecustomize"] = ours


def _main():
    folder = os.path.dirname(os.path.abspath(__file__))
    if os.environ.get("FULLWATT_RUN"):
        _start_agent(os.path.dirname(os.path.dirname(folder)))
    _leave_path(folder)
    _run_next()


_main()
