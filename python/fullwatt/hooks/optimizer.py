"""The optimiser's step, which is the training's step, by torch's global step hooks; compiled_steps.py has the other ways in."""

import os
import sys
from threading import get_ident
from time import perf_counter_ns as now

from .. import describe
from ..agent import BACKWARD_STEPS, BEFORE_TRAINING, COUNTING, EVALUATING, LEARNING, OFF
from ..recorder import AFTER_STEP, BACKWARD, BEFORE_STEP, CEILING, DATA, ENOUGH, OPTIMIZER, STOP
from ..trial import is_alone
from ..weak import Known

WARM_UP_STEPS = 10
BACKWARDS_WITHOUT_STEP = 20  # then each backward counts as a step: the optimiser is not torch's, or is compiled
BACKWARDS_OF_ACCUMULATION = 200  # the same where there is an optimiser that may still be gathering gradients
NEAR_FRAMES = 20
GROUP = "optimizer"


class Steps:
    """Sees steps begin and end, of the outermost optimiser where one calls another."""

    def __init__(self, agent, torch, inputs, actions, evaluations):
        self._agent = agent
        self._torch = torch
        self._inputs = inputs
        self._actions = actions
        self._evaluations = evaluations
        self._numbers = Known(self._is_gone)
        self._numbered = 0
        self._sites = Known()
        self._backwards = 0
        self._handles = ()
        self.stop = end_in_order
        self.warm_up_over = None  # called with the batches and the backward passes of a step
        agent.at_fork.append(self._forked)
        agent.at_steady.append(self._quicken)

    def _forked(self):
        self._numbers.clear()
        self._agent.optimizers = type(self._agent.optimizers)()
        self._numbered = 0
        self._backwards = 0

    def install(self):
        """Registers the global hooks and notes where optimisers are made."""
        module = sys.modules["torch.optim.optimizer"]  # torch.optim deletes the name
        before, after = make_hooks(self._agent, self._numbers.values, self)
        self.before, self.after = before, after
        self._handles = (module.register_optimizer_step_pre_hook(before), module.register_optimizer_step_post_hook(after))
        for handle in self._handles:
            self._agent.patches.on_restore(handle.remove, GROUP)
        self._agent.patches.replace(module.Optimizer, "__init__", self._make_init)

    def _quicken(self):
        """The recorder's hooks in the place of ours. Torch may be walking over its hooks: only values change in its tables."""
        hook = self._agent.recorder.hook
        self.before = hook(BEFORE_STEP, self._agent, None, self.before)
        self.after = hook(AFTER_STEP, self._agent, None, self.after, self.act)
        for handle, ours in zip(self._handles, (self.before, self.after)):
            table = handle.hooks_dict_ref()
            if table is not None and handle.id in table:
                table[handle.id] = ours

    def _make_init(self, original):
        steps = self

        def __init__(self, *args, **kwargs):
            original(self, *args, **kwargs)
            steps._agent.attempt(steps._made, self)

        return __init__

    def _made(self, optimizer):
        self._sites.put(optimizer, self._agent.sites.here())

    def began_inside(self, optimizer):
        """A step had begun and not ended. Either it calls this one, or it was left by an exception."""
        agent = self._agent
        if agent.trains_elsewhere():
            return
        if agent.inner_steps:
            agent.inner_steps += agent.stepping == id(optimizer)
        elif not is_on_stack(agent.stepping):
            agent.stepping, agent.step_start = id(optimizer), now()
        elif agent.stepping == id(optimizer):
            agent.inner_steps = 1

    def ended_inside(self, optimizer):
        """A step ended that is not the outermost."""
        agent = self._agent
        if agent.inner_steps and agent.stepping == id(optimizer):
            agent.inner_steps -= 1

    def careful(self, optimizer):
        """A step outside the steady state."""
        spent = now() - self._agent.step_start
        if self._agent.detail & OFF or self._agent.trains_elsewhere():
            return
        actions = self._agent.guard(self._careful, optimizer, spent)
        if actions:
            self.stop_if_asked(actions)

    def _careful(self, optimizer, spent):
        agent = self._agent
        if not agent.ready():
            return 0
        agent.detail &= ~BACKWARD_STEPS
        return self._count(self._number(optimizer), spent, optimizer)

    def _count(self, number, spent, optimizer):
        agent = self._agent
        agent.thread = get_ident()
        if agent.detail & EVALUATING:
            self._evaluations.end()
        agent.steps += 1
        self._tell_steady_part()
        if agent.detail & COUNTING:
            self._actions.finish_counting(agent.steps)
        site = agent.site(OPTIMIZER)
        self._actions.step_ended(self._numbered)
        actions = agent.step(number, now() - spent, site)
        if agent.steps == 1:
            agent.patches.restore(BEFORE_TRAINING)
            self._actions.tell_settings("first-step")
        if agent.detail & LEARNING:
            agent.attempt(self._inputs.after_step, optimizer)
            if agent.steps >= WARM_UP_STEPS:
                self._end_warm_up()
        if actions:
            self._actions.perform(actions)
        return actions

    def _tell_steady_part(self):
        """The step was steady at first: an evaluation or a window began in it."""
        agent = self._agent
        if agent.data_ns or agent.backward_ns:
            agent.samples(agent.taken)
            agent.phase(DATA, now() - agent.data_ns, 0)
            agent.phase(BACKWARD, now() - agent.backward_ns, 0)
            agent.data_ns = agent.backward_ns = agent.taken = 0

    def _end_warm_up(self):
        agent = self._agent
        agent.detail &= ~LEARNING
        self.warm_up_over(agent.batches / agent.steps, agent.backwards / agent.steps)

    def _number(self, optimizer):
        number = self._numbers.get(optimizer)
        if number is None:
            number = self._numbered
            self._numbered += 1
            self._numbers.put(optimizer, number)
            if number < len(self._agent.optimizers):
                self._agent.optimizers[number] = id(optimizer)
            self._agent.attempt(self._tell, optimizer, number)
        return number

    def _is_gone(self, number):
        if number < len(self._agent.optimizers):
            self._agent.optimizers[number] = 0

    def _tell(self, optimizer, number):
        self._agent.facts.add("optimizer", id=number, site=self._sites.get(optimizer), **describe.optimizer_fact(optimizer))

    def after_backward(self):
        """Without any step of an optimiser, a backward is one."""
        agent = self._agent
        if not agent.detail & BACKWARD_STEPS:
            if agent.steps > 0:
                return 0
            self._backwards += 1
            waits = len(self._sites) > 0 and not self._inputs.compiler_in_use
            if self._backwards < (BACKWARDS_OF_ACCUMULATION if waits else BACKWARDS_WITHOUT_STEP):
                return 0
            agent.detail |= BACKWARD_STEPS
        return self._count(0, 0, None)

    def act(self, actions):
        """What the recorder asked for after a steady step."""
        self._agent.guard(self._actions.perform, actions)
        self.stop_if_asked(actions)

    def stop_if_asked(self, actions):
        """The program ends here. Of several that were to end after so many steps each would find the time for long ones, or that of a ceiling test, over at another step."""
        if actions & STOP or (actions & ENOUGH and is_alone()) or (actions & CEILING and "FULLWATT_STEPS" in os.environ and not is_alone()):
            self.stop()


def end_in_order():
    """How `run --steps N` ends a program."""
    raise SystemExit(0)


def make_hooks(agent, numbers, steps):
    """The two hooks of every step. The recorder is called once, at its end: whatever is called first finds the processor's caches cold."""

    def before(optimizer, args, kwargs):
        if agent.stepping:
            agent.guard(steps.began_inside, optimizer)
            return None
        agent.stepping = id(optimizer)
        agent.step_start = now()
        if kwargs or len(args) > 1:
            return with_timed_closure(agent, args, kwargs)
        return None

    def after(optimizer, args, kwargs):
        if agent.stepping != id(optimizer) or agent.inner_steps:
            steps.ended_inside(optimizer)
            return
        agent.stepping = 0
        number = numbers.get(id(optimizer))
        if agent.detail or number is None:
            return steps.careful(optimizer)
        end = now()
        try:
            agent.steps += 1
            actions = agent.steady_step(number, agent.step_start, end, agent.taken, agent.data_ns, agent.backward_ns)
            agent.data_ns = agent.backward_ns = agent.taken = 0
        except Exception as error:
            agent.fail(error)
            return
        if actions:
            steps.act(actions)

    return before, after


def with_timed_closure(agent, args, kwargs):
    """A closure computes the loss inside the optimiser's step: its time is not the optimiser's."""

    def timed(closure):
        def run():
            start = now()
            try:
                return closure()
            finally:
                agent.step_start += now() - start

        return run

    closure = kwargs.get("closure")
    if callable(closure):
        return args, dict(kwargs, closure=timed(closure))
    if len(args) > 1 and callable(args[1]):
        return (args[0], timed(args[1])) + tuple(args[2:]), kwargs
    return None


def is_on_stack(optimizer_id):
    """Whether a step of the optimiser is being executed, near enough to be the one that calls."""
    frame = sys._getframe(1)
    for _ in range(NEAR_FRAMES):
        if frame is None:
            return False
        if frame.f_code.co_name == "step" and id(frame.f_locals.get("self")) == optimizer_id:
            return True
        frame = frame.f_back
    return False
