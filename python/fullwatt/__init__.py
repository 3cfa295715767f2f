"""fullwatt: why a GPU idles in a training.

In a notebook: `import fullwatt; fullwatt.start()`, train, `fullwatt.report()`. Elsewhere `fullwatt run -- python train.py`
needs no import at all.
"""

__version__ = "0.1.0"
__all__ = ["start", "report"]


def start(folder=None):
    """Watches the training of this process from now on; returns the run's folder."""
    from . import notebook

    return notebook.start(folder)


def report(folder=None):
    """Shows where the time went, as HTML in a notebook and as text elsewhere."""
    from . import notebook

    return notebook.report(folder)
