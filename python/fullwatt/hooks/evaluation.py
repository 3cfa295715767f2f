"""Evaluation: from Module.eval() of the trained model to its Module.train(), or to the next batch or backward that trains again."""

import weakref
from threading import get_ident
from time import perf_counter_ns as now

from .. import describe, dynamo
from ..agent import EVALUATING, OFF, OPENING
from ..recorder import EVALUATED, EVALUATION
from ..weak import Known

GROUP = "evaluation"


class Evaluations:
    """At most one evaluation is open. Module.train is replaced only while one is: some programs call it in every step."""

    def __init__(self, agent, torch, inputs):
        self._agent = agent
        self._torch = torch
        self._inputs = inputs
        self._told = set()  # places of Module.eval()
        self._others = Known()  # modules known not to hold the trained one, such as a frozen part of it
        self._start = 0
        self._module = None
        self.at_turn = []  # called before an evaluation begins or ends
        agent.at_fork.append(lambda: agent.patches.restore(GROUP))
        agent.at_end.append(self.end)

    def install(self):
        """Hooks Module.eval."""
        self._agent.patches.replace(self._torch.nn.Module, "eval", self._make_eval)

    def _make_eval(self, original):
        evaluations, agent = self, self._agent
        compiling = dynamo.is_tracing(self._torch)

        def eval(self):
            if compiling() or agent.detail & (OPENING | EVALUATING | OFF) or agent.thread != get_ident():
                return original(self)
            start = now()
            result = original(self)
            agent.guard(evaluations._begin, self, start)
            return result

        return eval

    def _begin(self, module, start):
        model = self._inputs.model() if self._inputs.model is not None else None
        if model is None or self._others.get(module):
            return
        inner = describe.unwrap(model)[0]
        if not any(part is inner or part is model for part in module.modules()):
            self._others.put(module, True)
            return
        self._start, self._module = start, weakref.ref(module)
        self._agent.attempt(self._tell_site)
        self._turn()
        self._agent.detail |= EVALUATING
        self._agent.recorder.flag(EVALUATED)
        self._agent.patches.replace(self._torch.nn.Module, "train", self._make_train, GROUP)

    def _tell_site(self):
        site = self._agent.sites.here()
        place = str(site)
        if place not in self._told:
            self._told.add(place)
            self._agent.facts.add("evaluation", site=site)

    def _make_train(self, original):
        evaluations, agent = self, self._agent

        def train(self, mode=True):
            if mode is True and agent.detail & EVALUATING and evaluations._module() is self:
                agent.guard(evaluations.end)
            return original(self, mode)

        return train

    def poll(self):
        """The next batch is asked for: some frameworks switch back to training without calling train()."""
        module = self._module() if self._module is not None else None
        if module is None or module.training:
            self.end()

    def end(self):
        """The evaluation ends now, if one is open."""
        agent = self._agent
        if not agent.detail & EVALUATING:
            return
        self._turn()
        agent.detail &= ~EVALUATING
        agent.patches.restore(GROUP)
        agent.tell(EVALUATION, self._start, now())
        agent.recorder.flag(EVALUATED)
        self._module = None

    def _turn(self):
        for action in self.at_turn:
            self._agent.attempt(action)
