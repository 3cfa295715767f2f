"""Python's garbage collector: what lives when the training is steady is left out of its full collections."""

import gc

RARELY = 1000  # collections of the middle generation for one full one; Python's own is 10


def freeze(tools, _):
    """From the steady state on."""
    report = tools.report

    def steady():
        if tools.is_refused:
            return
        if not gc.isenabled():
            report.refused("gc-freeze", "the program has switched the collector off")
            return
        gc.collect()
        gc.freeze()
        young, middle, old = gc.get_threshold()
        gc.set_threshold(young, middle, max(old, RARELY))
        report.in_force("gc-freeze", "%d objects are left out of full collections" % gc.get_freeze_count())

    report.waiting("gc-freeze", "until the training is steady")
    tools.agent.at_steady.append(steady)
