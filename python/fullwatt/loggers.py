"""Experiment loggers write to a service, which no copy of the files holds back: in a trial they stay offline, also where the program asks for their service.

The environment asks for the same (fullwatt/tune/trial.cpp), which is enough where the program says nothing.
"""

import os

OFFLINE = {"wandb": ("init", "mode", "offline"), "swanlab": ("init", "mode", "offline"), "neptune": ("init_run", "mode", "offline"), "comet_ml": ("start", "online", False)}
QUIETER = ("disabled", "debug", "read-only")


def install(agent, watch):
    """Waits for each of them to be imported."""
    for name in OFFLINE:
        watch.when_imported(name, lambda module, name=name: agent.guard(keep_offline, module, agent, *OFFLINE[name]))
    watch.when_imported("mlflow", lambda module: agent.guard(keep_local, module, agent))


def keep_offline(module, agent, function, keyword, value):
    """Has what begins an experiment take no other mode."""

    def make(original):
        def begin(*args, **kwargs):
            if kwargs.get(keyword) not in QUIETER:
                kwargs[keyword] = value
            if "FULLWATT_DIVERSION" in os.environ:
                kwargs.pop("dir", None)  # of wandb, which writes there by a program of its own: WANDB_DIR stands
            return original(*args, **kwargs)

        return begin

    agent.patches.replace(module, function, make)


def keep_local(mlflow, agent):
    """MLFLOW_TRACKING_URI stands."""

    def make(original):
        def begin(client, tracking_uri=None, registry_uri=None):
            return original(client)

        return begin

    agent.patches.replace(mlflow, "set_tracking_uri", lambda original: lambda uri: None)
    agent.patches.replace(mlflow.MlflowClient, "__init__", make)
