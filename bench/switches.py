"""What a training can be with and without, turned on and off while it runs: fullwatt's hooks, its windows, bare CUPTI, torch.profiler."""

import os
import signal
import sys

import torch
from bare_cupti import BareCupti
from torch.profiler import ProfilerActivity, profile


class Switch:
    """`turn(on)` turns it. What records is on for as many steps as a window of fullwatt's has, about 20."""

    settle = 3  # steps after a turn that do not count

    def group(self, step_ns):
        """How many steps are measured at a time."""
        return 16

    def leave(self, on):
        """As the training ends."""
        if on:
            self.turn(False)


class Hooks(Switch):
    """The hooks of a steady step, taken out and put in again without the agent's knowledge. Turning them costs nothing, so that few steps make a group: neighbours are most alike."""

    settle = 1

    def __init__(self):
        loader = torch.utils.data.dataloader._BaseDataLoaderIter
        places = [(torch.autograd, "backward"), (loader, "__next__")]
        self.functions = [(owner, name, vars(owner)[name], original(owner, name)) for owner, name in places]
        module = sys.modules["torch.optim.optimizer"]
        self.tables = [(table, dict(table)) for table in (module._global_optimizer_pre_hooks, module._global_optimizer_post_hooks)]

    def group(self, step_ns):
        return max(2, min(40, int(10_000_000 / step_ns)))

    def turn(self, on):
        for owner, name, ours, theirs in self.functions:
            setattr(owner, name, ours if on else theirs)
        for table, entries in self.tables:
            table.clear()
            table.update(entries if on else {})


class Window(Switch):
    """A window of the agent's, opened and closed as the recorder would ask for it."""

    def __init__(self, opening):
        from fullwatt import recorder

        self.opening, self.closing = getattr(recorder, opening), recorder.CLOSE
        self.actions = actions()

    def turn(self, on):
        self.actions.perform(self.opening if on else self.closing)


class Sampler(Switch):
    """The process of `fullwatt run` beside the training, which asks the driver and the system for figures; it stands still meanwhile. A group is so long that it asks for all of them."""

    settle = 1

    def group(self, step_ns):
        return max(16, int(1_000_000_000 / step_ns))

    def turn(self, on):
        os.kill(os.getppid(), signal.SIGCONT if on else signal.SIGSTOP)

    def leave(self, on):
        self.turn(True)


class Profiler(Switch):
    """Anything with start and stop; a new one for each turn."""

    def __init__(self, make):
        self.make, self.running = make, None

    def turn(self, on):
        if on:
            self.running = self.make()
            self.running.start()
        elif self.running is not None:
            self.running.stop()
            self.running = None


def agent():
    from fullwatt import entry

    return entry.current()


def original(owner, name):
    """Torch's own function, below all hooks."""
    return next(patch[3] for patch in agent().patches._done if patch[1] is owner and patch[2] == name)


def actions():
    from fullwatt.actions import Actions

    owners = (getattr(part, "__self__", None) for part in agent().at_end)
    return next(owner for owner in owners if isinstance(owner, Actions))


def torch_profiler(*activities, **options):
    on_gpu = [ProfilerActivity.CUDA] if torch.cuda.is_available() else []
    return lambda: profile(activities=[*activities, *on_gpu] or [ProfilerActivity.CPU], **options)


SWITCHES = {
    "hooks": Hooks,
    "sampler": Sampler,
    "times": lambda: Window("OPEN_TIMES"),
    "causes": lambda: Window("OPEN_CAUSES"),
    "bare_cupti": lambda: Profiler(BareCupti),
    "profiler_cuda": lambda: Profiler(torch_profiler()),
    "profiler_both": lambda: Profiler(torch_profiler(ProfilerActivity.CPU)),
    "profiler_stacks": lambda: Profiler(torch_profiler(ProfilerActivity.CPU, with_stack=True)),
}
