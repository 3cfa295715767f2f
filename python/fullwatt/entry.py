"""How the agent gets into a process: by sitecustomize, before the program; or by fullwatt.start(), in the middle of it."""

import os

_agent = None


def begin(folder=None, recorder_path=None, load_recorder=None):
    """Starts the agent of this process, once; returns it, or None where nothing is to be recorded."""
    global _agent
    folder = folder or os.environ.get("FULLWATT_RUN")
    if not folder or _agent is not None:
        return _agent
    recorder_path = recorder_path or os.environ.get("FULLWATT_RECORDER", "")
    # The driver loads the recorder too (CUDA_INJECTION64_PATH): this tells it that somebody is in charge here.
    os.environ["FULLWATT_AGENT"] = str(os.getpid())
    from .agent import Agent

    _agent = Agent(os.path.abspath(folder), load_recorder or (lambda: _load(recorder_path)))
    _agent.guard(_install, _agent)
    return _agent


def current():
    """The agent of this process, or None."""
    return _agent


def _load(path):
    """The recorder's library, when the first step needs it."""
    from .recorder import Recorder

    if not path:
        raise RuntimeError("FULLWATT_RECORDER does not name the recorder's library")
    return Recorder(path)


def _install(agent):
    from . import diversion, files, loggers
    from .agent import BEFORE_TRAINING
    from .imports import ImportWatch

    watch = ImportWatch()
    agent.patches.on_restore(watch.stop)
    os.register_at_fork(after_in_child=lambda: agent.guard(agent.forked))
    agent.at_fork.append(lambda: agent.patches.restore(BEFORE_TRAINING))
    files.install(agent)
    places = diversion.install(agent, watch, os.environ["FULLWATT_DIVERSION"]) if "FULLWATT_DIVERSION" in os.environ else None
    if "FULLWATT_TRIAL" in os.environ:
        loggers.install(agent, watch)
    watch.when_imported("argparse", lambda module: agent.guard(_hook_arguments, module, agent))
    watch.when_imported("fullwatt.loader", lambda own: agent.guard(agent.hook_batches, own.Epoch))  # it imports torch
    watch.when_imported("torch", lambda module: agent.guard(_hook_torch, module, agent, watch, places))


def _hook_arguments(argparse, agent):
    from . import arguments

    arguments.install(argparse, agent)


def _hook_torch(torch, agent, watch, places):
    from . import diversion, hooks

    hooks.install(torch, agent, watch)
    if places:
        diversion.install_torch(torch, agent, places)
