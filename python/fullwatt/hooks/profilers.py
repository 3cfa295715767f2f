"""The user's own torch.profiler: CUPTI has one seat, and it is theirs for as long as they record."""


def install(agent, torch, actions):
    """Hooks the profiler that both torch.profiler and torch.autograd.profiler are made of."""
    owner = torch.autograd.profiler.profile
    profilers = Profilers(agent, actions)
    begin = "_prepare_trace" if hasattr(owner, "_prepare_trace") else "__enter__"
    agent.patches.replace(owner, begin, profilers.make_begin)
    agent.patches.replace(owner, "__exit__", profilers.make_exit)


class Profilers:
    """Gives way before the profiler starts and takes the seat back after it has ended."""

    def __init__(self, agent, actions):
        self._agent = agent
        self._actions = actions
        self._open = 0

    def make_begin(self, original):
        profilers = self

        def begin(self, *args):
            if getattr(self, "enabled", True):
                profilers._agent.guard(profilers._starts)
            return original(self, *args)

        return begin

    def make_exit(self, original):
        profilers = self

        def __exit__(self, *args):
            result = original(self, *args)
            if getattr(self, "enabled", True):
                profilers._agent.guard(profilers._stopped)
            return result

        return __exit__

    def _starts(self):
        self._open += 1
        if self._open > 1:
            return
        self._actions.lose_window()
        self._give_way(True)

    def _stopped(self):
        self._open = max(0, self._open - 1)
        if self._open == 0:
            self._give_way(False)

    def _give_way(self, yes):
        self._agent.facts.add(
            "profiler", who="torch.profiler", state="start" if yes else "stop", site=self._agent.sites.here()
        )
        if self._agent.ready(may_open=yes):
            self._agent.recorder.give_way(yes, "torch.profiler")
