"""Calls us when the program imports a module, without importing it ourselves."""

import sys


class ImportWatch:
    """A finder that finds nothing itself: it lets the others find, and wraps the execution of the modules it waits for."""

    def __init__(self):
        self._waiting = {}

    def when_imported(self, name, after, before=None):
        """Calls `after(module)` once the module is complete; at once when it is there already."""
        module = sys.modules.get(name)
        if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
            after(module)
            return
        self._waiting[name] = (before, after)
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def stop(self):
        """Waits for nothing any more."""
        self._waiting.clear()
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, name, path=None, target=None):
        """Python's import asks this first."""
        if name not in self._waiting:
            return None
        spec = self._find_elsewhere(name, path, target)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            self._wrap(name, spec.loader)
        return spec

    def _find_elsewhere(self, name, path, target):
        for finder in list(sys.meta_path):
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                return spec
        return None

    def _wrap(self, name, loader):
        execute = loader.exec_module

        def exec_module(module):
            before, after = self._waiting.get(name, (None, None))
            if before is not None:
                before()
            execute(module)
            try:
                del loader.exec_module
            except AttributeError:
                pass
            if self._waiting.pop(name, None) is not None:
                after(module)
            if not self._waiting:
                self.stop()

        try:
            loader.exec_module = exec_module
        except AttributeError:
            pass  # a loader that takes no attributes is left alone
