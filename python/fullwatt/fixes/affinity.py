"""The CPUs that a program runs on: on a machine of several sockets those beside its GPU."""

import os

from .switches import Setting, Switch

NAME = "affinity"


def affinity(tools, entry):
    """All threads of the program and the processes that it has started; those that come later are like the one that starts them."""
    wanted = cpus_of(entry["cpus"])
    if not hasattr(os, "sched_setaffinity"):
        tools.report.refused(NAME, "this system does not let a program choose its CPUs")
        return
    if not wanted <= os.sched_getaffinity(0):
        tools.report.refused(NAME, "the program may not use all of the CPUs %s" % entry["cpus"])
        return
    setting = Setting(lambda: os.sched_getaffinity(0), mover(os.sched_setaffinity), wanted)
    if tools.turns.takes(NAME, setting.turn):
        return
    switch = Switch(tools, NAME, setting, "CPUs " + entry["cpus"])
    tools.patches.replace(os, "sched_setaffinity", lambda original: held(tools, switch, original, wanted), NAME)


def cpus_of(text):
    """The kernel's way to list CPUs: 0-7,16-23."""
    ranges = [part.partition("-") for part in text.split(",")]
    return {cpu for first, _, last in ranges for cpu in range(int(first), int(last or first) + 1)}


def mover(set_affinity):
    """What moves all that runs where this thread does; threads that the program has bound elsewhere stay there."""

    def move(cpus):
        present = os.sched_getaffinity(0)
        for thread in threads_of(os.getpid()):
            try:
                if os.sched_getaffinity(thread) == present:
                    set_affinity(thread, cpus)
            except OSError:  # it has ended
                continue

    return move


def threads_of(process):
    """Of a process and of all that it has started."""
    folder = "/proc/%d/task" % process
    try:
        threads = [int(thread) for thread in os.listdir(folder)]
    except OSError:
        return
    for thread in threads:
        yield thread
        try:
            with open("%s/%d/children" % (folder, thread), encoding="ascii") as file:
                children = file.read().split()
        except OSError:
            continue
        for child in children:
            yield from threads_of(int(child))


def held(tools, switch, original, wanted):
    """The program's own choice for itself is noted and not taken."""

    def sched_setaffinity(process, cpus):
        if tools.agent.is_child or tools.is_refused or process not in (0, os.getpid()):
            return original(process, cpus)
        cpus = set(cpus)
        switch.note(NAME, lambda: original(process, cpus))
        if cpus != wanted:
            switch.overrode("sched_setaffinity(%d, %s)" % (process, sorted(cpus)))

    return sched_setaffinity
