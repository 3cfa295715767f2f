"""torch.compile: what is compiled, how long compiling takes, how often it happens again and what breaks the graph."""

import collections
import sys
from time import perf_counter_ns as now

from .. import describe
from ..recorder import COMPILE, COMPILED

REASON_LIMIT = 20


class Compiler:
    """Watches the compiler from outside. As soon as it is used, every hook that it could trace is taken out of its sight."""

    def __init__(self, agent, torch, inputs, imports):
        self._agent = agent
        self._torch = torch
        self._inputs = inputs
        self._imports = imports
        self._start = None
        self._seconds = 0.0
        self.steps = self.actions = None
        agent.at_end.append(self.tell)

    def install(self):
        """Hooks torch.compile and, once it is imported, the compiler itself."""
        self._agent.patches.replace(self._torch, "compile", self._make_compile)
        guard = self._agent.guard
        self._imports.when_imported(
            "torch._dynamo", lambda module: guard(self._imported), before=lambda: guard(self._inputs.pause)
        )

    def _imported(self):
        """Importing alone means nothing: every optimiser does it."""
        self.listen()
        self._inputs.resume()

    def listen(self):
        """Has the compiler call us when it begins and ends."""
        handler = getattr(sys.modules.get("torch._dynamo.callback"), "callback_handler", None)
        if handler is None:
            self._wrap_old_compiler()
        elif self._began not in handler.start_callbacks:
            handler.register_start_callback(self._began)
            handler.register_end_callback(self._ended)
            self._agent.patches.on_restore(lambda: self._forget(handler))

    def _forget(self, handler):
        for callbacks, callback in ((handler.start_callbacks, self._began), (handler.end_callbacks, self._ended)):
            if callback in callbacks:
                callbacks.remove(callback)

    def _wrap_old_compiler(self):
        """Before torch 2.5 there are no callbacks."""
        convert = sys.modules.get("torch._dynamo.convert_frame")
        if convert is None or self._agent.patches.has("compiler"):
            return

        def make(original):
            def _compile(*args, **kwargs):
                self._began()
                try:
                    return original(*args, **kwargs)
                finally:
                    self._ended()

            return _compile

        self._agent.patches.replace(convert, "_compile", make, "compiler")

    def _began(self, *_):
        if self._start is None:
            self._start = now()

    def _ended(self, *_):
        start, self._start = self._start, None
        if start is not None:
            end = now()
            self._seconds += (end - start) / 1e9
            self._agent.guard(self._record, start, end)

    def _record(self, start, end):
        if self._agent.ready(may_open=False):
            self._agent.tell(COMPILE, start, end)
            self._agent.recorder.flag(COMPILED)

    def _make_compile(self, original):
        compiler = self

        def compile(model=None, *args, **kwargs):
            compiler._agent.guard(compiler._asked, model, kwargs)
            result = original(model, *args, **kwargs)
            compiler._agent.guard(compiler.steps.use_classes)
            return result

        return compile

    def _asked(self, model, options):
        self._inputs.pause()
        self._inputs.compiler_in_use = True
        self.listen()
        self.steps.use_ranges()
        self.actions.finish_counting(None)
        if model is not None:
            self._agent.attempt(self._tell_target, model, options)

    def _tell_target(self, model, options):
        module = getattr(model, "__self__", model)
        self._agent.facts.add(
            "compile",
            site=self._agent.sites.here(),
            mode=options.get("mode"),
            backend=_name(options.get("backend", "inductor")),
            dynamic=options.get("dynamic"),
            fullgraph=bool(options.get("fullgraph", False)),
            target=type(module).__name__ if isinstance(module, self._torch.nn.Module) else getattr(model, "__qualname__", ""),
        )

    def has_compiled(self):
        """Whether anything was compiled really: libraries call torch.compile for functions that nobody uses."""
        utils = sys.modules.get("torch._dynamo.utils")
        return self._inputs.compiler_in_use and utils is not None and bool(utils.counters.get("frames"))

    def tell(self):
        """The fact `compile_stats`."""
        if not self.has_compiled():
            return
        self.listen()
        utils = sys.modules["torch._dynamo.utils"]
        breaks = {str(reason).split("\n")[0]: count for reason, count in list(utils.counters["graph_break"].items())[:REASON_LIMIT]}
        self._agent.facts.add(
            "compile_stats",
            id=0,
            frames=utils.counters["frames"].get("total", 0),
            recompiles=_recompiles(utils),
            graph_breaks=breaks,
            break_at=self._agent.attempt(self._break_at, utils),
            cache_misses=utils.counters["inductor"].get("fxgraph_cache_miss", 0) if "inductor" in utils.counters else 0,
            seconds=self._seconds,
        )

    def _break_at(self, utils):
        """The line of the program that most graph breaks are at."""
        lines = collections.Counter()
        for reason in utils.graph_break_reasons:
            own = [frame for frame in reason.user_stack if self._agent.sites.is_user(frame.filename)]
            if own:
                lines[(own[-1].filename, own[-1].lineno, own[-1].name)] += 1
        if not lines:
            return None
        file, line, function = lines.most_common(1)[0][0]
        return {"file": self._agent.sites.absolute(file), "line": line, "function": function}


def _name(backend):
    return backend if isinstance(backend, str) else describe.function_name(backend)


def _recompiles(utils):
    """Compilations of code that had been compiled before."""
    if hasattr(utils, "get_compilation_metrics"):
        metrics = [m for m in utils.get_compilation_metrics() if getattr(m, "co_name", None) is not None]
        places = {(m.co_filename, m.co_firstlineno, m.co_name) for m in metrics}
        return len(metrics) - len(places)
    return sum(len(failures) for failures in utils.guard_failures.values())
