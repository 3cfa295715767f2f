"""Python's garbage collector: what lives when the training is steady is left out of its full collections."""

import gc

NAME = "gc-freeze"
RARELY = 1000  # collections of the middle generation for one full one; Python's own is 10


def freeze(tools, _):
    """From the steady state on."""
    freezing = Freezing(tools)
    tools.report.waiting(NAME, "until the training is steady")
    tools.agent.at_steady.append(freezing.begin)
    tools.agent.at_look.append(freezing.look)


class Freezing:
    """What was set, and whether the program has set it otherwise since."""

    def __init__(self, tools):
        self._tools, self._report = tools, tools.report
        self._what = ""
        self._thresholds = None
        self._is_thawed = False

    def begin(self):
        if self._tools.is_refused:
            return
        if not gc.isenabled():
            self._report.refused(NAME, "the program has switched the collector off")
            return
        gc.collect()
        gc.freeze()
        young, middle, old = gc.get_threshold()
        gc.set_threshold(young, middle, max(old, RARELY))
        self._thresholds = gc.get_threshold()
        self._what = "%d objects are left out of full collections" % gc.get_freeze_count()
        self._tools.patches.replace(gc, "unfreeze", self._thawing)  # to count what is frozen would take as long as a collection
        self._report.in_force(NAME, self._what)

    def _thawing(self, original):
        def unfreeze():
            self._is_thawed = True
            original()

        return unfreeze

    def look(self):
        """Whether it is still in force."""
        if self._thresholds is None:
            return
        why = self._why_not()
        if why:
            self._report.undone(NAME, "the program has " + why)
        else:
            self._report.in_force(NAME, self._what)

    def _why_not(self):
        if not gc.isenabled():
            return "switched the collector off"
        if self._is_thawed:
            return "called gc.unfreeze()"
        return "set other thresholds" if gc.get_threshold() != self._thresholds else ""
