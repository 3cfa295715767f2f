"""The hooks in torch, one file for each thing that is watched; `install` is called once torch is imported."""

from .. import dynamo, fixes, trial
from ..actions import Actions
from ..inputs import Inputs
from . import backward, collection, compiled_steps, compiler, declared, evaluation, fetching, loader, optimizer, profilers
from . import saving, startup


def install(torch, agent, imports):
    """Puts every hook in place. Nothing is recorded before an optimiser, a loader or a model is used."""
    agent.sites.refresh()
    inputs = Inputs(agent, torch)
    compiling = compiler.Compiler(agent, torch, inputs, imports)
    fetches = fetching.Fetching(agent, torch)
    actions = Actions(agent, torch, compiling, fetches)
    evaluations = evaluation.Evaluations(agent, torch, inputs)
    steps = optimizer.Steps(agent, torch, inputs, actions, evaluations)
    compiling.steps, compiling.actions = compiled_steps.CompiledSteps(agent, torch, steps), actions
    startup.install(agent, torch, actions, steps, fetches)
    loader.install(agent, torch, inputs, evaluations)
    fetches.start()
    backward.install(agent, torch, inputs, actions, evaluations, steps)
    steps.install()
    evaluations.install()
    compiling.install()
    saving.install(agent, torch)
    collection.install(agent)
    profilers.install(agent, torch, actions)
    declared.install(agent, torch, actions)
    fixes.install(torch, agent, inputs, trial.turns(torch, agent))
    trial.install(torch, agent, inputs, actions, steps, evaluations)
    dynamo.skip_our_code(torch)
    agent.switch_compiler = dynamo.switch(torch) or agent.switch_compiler
