"""fullwatt: why a GPU idles in a training.

In a notebook: `import fullwatt; fullwatt.start()`, train, `fullwatt.report()`. Elsewhere `fullwatt run -- python train.py`
needs no import at all. `fullwatt.Loader` stands where a DataLoader does.
"""

__version__ = "0.1.0"
__all__ = ["start", "report", "Loader"]


def start(folder=None):
    """Watches the training of this process from now on; returns the run's folder."""
    from . import notebook

    return notebook.start(folder)


def report(folder=None):
    """Shows where the time went, as HTML in a notebook and as text elsewhere."""
    from . import notebook

    return notebook.report(folder)


def __getattr__(name):
    """The loader is imported, and torch with it, when it is first used."""
    if name != "Loader":
        raise AttributeError("module %r has no attribute %r" % (__name__, name))
    from .loader import Loader

    return Loader
