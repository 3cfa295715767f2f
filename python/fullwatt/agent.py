"""The agent of this process: what the hooks share, when the spool is opened, and how the agent ends."""

import os
import sys
import threading
from time import perf_counter_ns as _now

from .facts import Facts
from .patches import Patches
from .recorder import COMPILE, EVALUATION, SAVE, Training
from .sites import Sites

# Why a hook must look closer than in a steady step; the sum of these is Agent.detail, and 0 is the steady state. WINDOW is the first step of a window,
# whose phases tell their lines, too; PHASES is the rest of it.
OPENING, LEARNING, WINDOW, EVALUATING, CEILING, LOSS, VARYING, COUNTING, BACKWARD_STEPS, OFF, PHASES = (1 << bit for bit in range(11))
BEFORE_TRAINING = "before training"  # the group of patches that go with the first step
RARE = (COMPILE, EVALUATION, SAVE)  # phases that not every step has
ERROR_LIMIT = 10  # descriptions that may fail and be named in the spool


def nothing(*_):
    """Stands for a call of the recorder, or of torch, while there is none."""
    return 0


class Agent(Training):
    """One for each process. What the hooks need in every step is in the fields of Training, which the recorder reads and writes, too."""

    def __init__(self, folder, load_recorder):
        super().__init__(detail=OPENING | LEARNING)
        self.folder = folder
        self.facts = Facts(folder)
        self.patches = Patches()
        self.sites = Sites()
        self.recorder = None
        self.phase = self.step = self.steady_step = self.samples = nothing
        self.batches = self.backwards = 0  # outside the steady state
        self.is_child = False
        self.switch_compiler = nothing  # off while our code runs: it would compile what we call
        self.hook_batches = nothing  # watches another class of iterators over batches
        self.errors = 0
        self._load_recorder = load_recorder
        self._lock = threading.RLock()
        self.at_open = []
        self.at_steady = []
        self.at_look = []  # about once a second
        self.at_fork = []
        self.at_end = []
        self.pid = os.getpid()

    def trains_elsewhere(self):
        """Whether it is another thread that trains."""
        return self.thread not in (0, threading.get_ident())

    def ready(self, role=0, may_open=True):
        """Whether hooks may record; opens the spool at the first use of an optimiser, a loader or a model."""
        if self.detail & OFF:
            return False
        if not self.detail & OPENING:
            return True
        return may_open and self._open(role)

    def _open(self, role):
        with self._lock:
            if not self.detail & OPENING:
                return not self.detail & OFF
            self.detail &= ~OPENING
            try:
                self._open_spool(role)
                return not self.detail & OFF
            except Exception as error:
                self.fail(error)
                return False

    def _open_spool(self, role):
        if self.recorder is None:
            self.recorder = self._load_recorder()
        why = self.recorder.open(self.folder, role, rank())
        if why:
            self.turn_off("nothing is recorded: %s; the training goes on" % why)
            return
        self.pid = os.getpid()
        self.sites.text = self.recorder.text
        self.phase, self.samples = self.recorder.phase, self.recorder.samples
        self.step, self.steady_step = self.recorder.step, self.recorder.steady_step
        self.facts.open(self.pid)
        for action in self.at_open:
            action(role)

    def site(self, phase):
        """The text id of the user's place, inside windows only: it costs a walk over the stack."""
        return self.sites.id_here() if self.detail & WINDOW or phase in RARE and self.detail & PHASES else 0

    def tell(self, phase, start, end):
        """A phase outside the steady state. Finding its place takes time that is not the phase's."""
        site = self.site(phase)
        self.phase(phase, start + (_now() - end), site)

    def guard(self, action, *arguments):
        """Runs something of ours; what it raises turns the agent off and never reaches the training."""
        if self.detail & OFF:
            return None
        switch = self.switch_compiler
        compiler = switch(None)
        try:
            return action(*arguments)
        except Exception as error:
            self.fail(error)
            return None
        finally:
            switch(compiler)

    def attempt(self, action, *arguments):
        """Like `guard`, for what only describes: if it fails, something stays unknown, and the recording goes on."""
        if self.detail & OFF:
            return None
        switch = self.switch_compiler
        compiler = switch(None)
        try:
            return action(*arguments)
        except Exception as error:
            self.errors += 1
            if self.errors <= ERROR_LIMIT:
                self._note_trouble("not known: %s" % describe_error(error))
            return None
        finally:
            switch(compiler)

    def fail(self, error):
        """Something of ours went wrong."""
        self.errors += 1
        self.turn_off("the agent turned itself off: %s; the training goes on" % describe_error(error))

    def turn_off(self, why):
        """Restores everything and says so once, in the spool, the facts and on stderr."""
        with self._lock:
            if self.detail & OFF:
                return
            self.detail = OFF
            self.phase = self.step = self.steady_step = self.samples = nothing
        for action in (self._note_trouble, self._note_fact, self.end, self.patches.restore, say):
            try:
                action(why) if action not in (self.end, self.patches.restore) else action()
            except Exception:
                pass

    def _note_trouble(self, why):
        if self.recorder is not None and self.sites.text is not None:
            from .recorder import TROUBLE

            self.recorder.record(TROUBLE, 0, self.recorder.text(why), _now(), 0, 0, 0, 0, 0)

    def _note_fact(self, why):
        self.facts.add("agent", errors=self.errors, off=why)

    def end(self):
        """At the end of the process, or of the agent: each part writes what it still holds."""
        if os.getpid() != self.pid:
            return
        parts, self.at_end = self.at_end, []
        for part in parts:
            try:
                part()
            except Exception:
                self.errors += 1
        if self.recorder is not None:
            self.recorder.close()

    def forked(self):
        """In a forked child: the parent's spool and facts are left alone; a child that trains opens its own."""
        was_off = self.detail & OFF
        self._lock = threading.RLock()
        if self.recorder is not None:
            self.recorder.forked()
        self.detail = OFF if was_off else OPENING | LEARNING
        self.phase = self.step = self.steady_step = self.samples = nothing
        self.thread = self.stepping = self.inner_steps = self.in_backward = 0
        self.data_ns = self.backward_ns = self.taken = 0
        self.steps = self.batches = self.backwards = self.batch = self.credits = 0
        self.is_child = True
        if "FULLWATT_AGENT" in os.environ:
            os.environ["FULLWATT_AGENT"] = str(os.getpid())
        self.sites.text = None
        self.facts.forked()
        for action in self.at_fork:
            self.guard(action)


def rank():
    """The process's number in a distributed training, or -1."""
    number = torch_distributed("get_rank")
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"):
        text = os.environ.get(name, "")
        number = int(text) if number is None and text.isdigit() else number
    return -1 if number is None else number


def torch_distributed(question):
    """What torch.distributed answers, or None before it is initialised."""
    distributed = sys.modules.get("torch.distributed")
    try:
        return getattr(distributed, question)() if distributed.is_available() and distributed.is_initialized() else None
    except Exception:
        return None


def describe_error(error):
    """Type, text and the line of ours where it happened."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        code = trace.tb_frame.f_code
        place = " (%s:%d)" % (os.path.basename(code.co_filename), trace.tb_lineno)
        trace = trace.tb_next
    return "%s: %s%s" % (type(error).__name__, str(error)[:200], place)


def say(text):
    """One line on stderr; a closed one is no reason to fail."""
    try:
        sys.stderr.write("fullwatt: %s\n" % text)
        sys.stderr.flush()
    except Exception:
        pass


