"""Fixes that are one setting of torch: set at once, kept when the program sets the opposite, looked at again while it trains."""

import os


class Setting:
    """Values of torch's: `read()` gives them, `write(values)` sets them by torch's own means, and `wanted` are those of the fix."""

    def __init__(self, read, write, wanted):
        self._read = read
        self._write = write
        self._wanted = wanted
        self._before = []

    def turn(self, on):
        """The fix's values, or those that were there before."""
        if on:
            self._before[:] = [self._read()]
            self._write(self._wanted)
        elif self._before:
            self._write(self._before.pop())

    def is_in_force(self):
        """Whether torch has the values of the fix."""
        return self._read() == self._wanted


class Switch:
    """A setting that the plan holds."""

    def __init__(self, tools, name, setting, what, is_in_force=None):
        self._tools = tools
        self._name = name
        self._setting = setting
        self._is_in_force = is_in_force or setting.is_in_force
        self._what = what
        self._own = {}  # what the program has set meanwhile: how to set it, by its name
        setting.turn(True)
        tools.patches.on_restore(self._put_back, name)
        self.check()
        tools.agent.at_steady.append(self.check)
        tools.agent.at_look.append(self.check)

    def hold_property(self, owner, name, wanted):
        """A property of one of torch's modules of settings: the program's own value is noted and not taken."""
        switch, original = self, vars(owner)[name]

        class Held:
            def __get__(self, instance, kind):
                return original.__get__(instance, kind)

            def __set__(self, instance, value):
                switch.note(name, lambda: setattr(instance, name, value))
                if value != wanted:
                    switch.overrode("%s = %r" % (name, value))

        self._tools.patches.replace(owner, name, lambda _: Held(), self._name)

    def hold_function(self, owner, name, wanted):
        """A function that sets it by its argument."""
        switch, tools = self, self._tools

        def make(original):
            def setter(*args, **kwargs):
                value = next(iter([*args, *kwargs.values()]), None)
                if tools.agent.is_child or tools.is_refused:  # torch itself sets the threads of a loader's workers
                    return original(*args, **kwargs)
                switch.note(name, lambda: original(*args, **kwargs))
                if value != wanted:
                    switch.overrode("%s(%r)" % (name, value))

            return setter

        self._tools.patches.replace(owner, name, make, self._name)

    def note(self, name, set_it):
        """The program has set something, which must wait until the plan is refused; nothing where it takes that back."""
        self._own.pop(name, None)
        if set_it is not None:
            self._own[name] = set_it

    def _put_back(self):
        """As it would be by now without the plan."""
        self._setting.turn(False)
        for set_it in self._own.values():
            set_it()

    def overrode(self, what):
        """The program has set something else, which is dropped for the plan's."""
        self._tools.agent.attempt(self._tools.report.overrode, self._name, what)

    def check(self):
        """Whether it is in force."""
        report = self._tools.report
        if report.state(self._name) == "refused":
            return
        if self._is_in_force():
            report.in_force(self._name, self._what)
        elif report.state(self._name) in ("in-force", "undone"):
            report.undone(self._name, self._what + " was set to something else")
        else:
            report.refused(self._name, self._what + " could not be set")


def tf32(tools, _):
    """Matrix products and convolutions of float32 on tensor cores."""
    torch = tools.torch
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul

    # "none" and "ieee" mean the same here, but not to what was compiled before.
    exact = [owner for owner in (matmul, getattr(torch.backends.mkldnn, "matmul", None)) if hasattr(owner, "fp32_precision")]

    def read():
        return torch.get_float32_matmul_precision(), cudnn.allow_tf32, [owner.fp32_precision for owner in exact]

    def write(values):
        torch.set_float32_matmul_precision(values[0])
        cudnn.allow_tf32 = values[1]
        for owner, value in zip(exact, values[2]):
            owner.fp32_precision = value

    setting = Setting(read, write, ("high", True, []))
    if tools.turns.takes("tf32", setting.turn):
        return
    switch = Switch(tools, "tf32", setting, "float32 by TF32", lambda: read()[0] != "highest" and read()[1])
    switch.hold_property(type(cudnn), "allow_tf32", True)
    switch.hold_function(torch, "set_float32_matmul_precision", "high")
    hold_matmul(tools, switch, type(matmul))


def hold_matmul(tools, switch, owner):
    """torch.backends.cuda.matmul sets by __setattr__."""

    def make(original):
        def __setattr__(self, name, value):
            if name not in ("allow_tf32", "fp32_precision"):
                return original(self, name, value)
            switch.note("matmul." + name, lambda: original(self, name, value))
            if value not in (True, "tf32"):
                switch.overrode("matmul.%s = %r" % (name, value))

        return __setattr__

    tools.patches.replace(owner, "__setattr__", make)


def cudnn_benchmark(tools, _):
    """cuDNN tries its algorithms once for every shape and takes the fastest."""
    cudnn = tools.torch.backends.cudnn

    def read():
        return cudnn.benchmark, cudnn.deterministic

    def write(values):
        cudnn.benchmark, cudnn.deterministic = values

    setting = Setting(read, write, (True, False))

    def make(original):
        def use_deterministic_algorithms(*args, **kwargs):
            original(*args, **kwargs)
            if tools.torch.are_deterministic_algorithms_enabled():
                tools.patches.restore("cudnn-benchmark")
                tools.report.refused("cudnn-benchmark", "the program asks for deterministic algorithms")

        return use_deterministic_algorithms

    if tools.turns.takes("cudnn-benchmark", setting.turn):
        return
    switch = Switch(tools, "cudnn-benchmark", setting, "torch.backends.cudnn.benchmark")
    tools.patches.replace(tools.torch, "use_deterministic_algorithms", make)
    switch.hold_property(type(cudnn), "benchmark", True)
    switch.hold_property(type(cudnn), "deterministic", False)


def anomaly_off(tools, _):
    """Anomaly detection, which keeps a stack trace of every operation, is not switched on."""
    torch = tools.torch

    setting = Setting(torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly, False)
    switch = Switch(tools, "anomaly-off", setting, "anomaly detection")
    for owner, name in ((torch.autograd, "set_detect_anomaly"), (torch.autograd, "detect_anomaly")):
        tools.patches.replace(owner, name, lambda original: off(original, switch, tools))


def off(original, switch, tools):
    """The same context manager, which changes nothing before the plan is refused."""
    has_mode = "mode" in original.__init__.__code__.co_varnames

    class Off(original):
        def __init__(self, *args, **kwargs):
            if tools.is_refused:
                super().__init__(*args, **kwargs)
                return
            super().__init__(*((False,) if has_mode else ()))
            self.prev = False
            is_wanted = not has_mode or bool((args + tuple(kwargs.values()) + (True,))[0])
            if is_wanted:
                switch.overrode(original.__name__)
            if has_mode:
                self._note(is_wanted)

        def __enter__(self):
            if tools.is_refused:
                super().__enter__()
            elif not has_mode:
                self._note(True)

        def __exit__(self, *args):
            super().__exit__(*args)
            switch.note("anomaly", None)

        def _note(self, is_wanted):
            switch.note("anomaly", lambda: tools.torch.autograd.set_detect_anomaly(is_wanted))

    return Off


def threads(tools, entry):
    """The number of threads that torch computes with on the CPU."""
    torch, wanted = tools.torch, int(entry["count"])

    setting = Setting(torch.get_num_threads, torch.set_num_threads, wanted)
    if tools.turns.takes("threads", setting.turn):
        return
    switch = Switch(tools, "threads", setting, "torch.set_num_threads(%d)" % wanted)
    switch.hold_function(torch, "set_num_threads", wanted)


def allocator(tools, entry):
    """How torch's CUDA allocator manages memory: it reads the variable when it starts, so that this one is set before the program."""
    value = os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or ""
    if entry["settings"] in value:
        tools.report.in_force("allocator", value)
    else:
        tools.report.refused("allocator", "the variable PYTORCH_ALLOC_CONF is %r" % value)
