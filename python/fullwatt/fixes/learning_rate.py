"""The learning rates of a program, multiplied, and put back where the plan is refused."""

import weakref

RATES_OF_THEIR_OWN = ("OneCycleLR", "CyclicLR")  # schedules that are given theirs


class LearningRates:
    """Of all its optimisers, and of the schedules over these: a schedule keeps the rate that it began with."""

    def __init__(self, tools, factor):
        self._tools = tools
        self._factor = factor
        self._is_scaled = False
        self._optimizers = weakref.WeakKeyDictionary()  # the rates that the program gave to each
        self._schedules = weakref.WeakSet()
        optim = tools.torch.optim
        tools.patches.replace(optim.Optimizer, "__init__", lambda original: noting(tools, original, self._meet))
        tools.patches.replace(optim.lr_scheduler.LRScheduler, "__init__", lambda original: noting(tools, original, self._schedules.add))
        tools.patches.on_restore(self._put_back)

    def scale(self):
        """A loader has the larger batch."""
        if not self._is_scaled:
            self._is_scaled = True
            for optimizer, given in list(self._optimizers.items()):
                self._move(optimizer, {rate: rate * self._factor for rate in given}, self._factor)

    def _put_back(self):
        if self._is_scaled:
            self._is_scaled = False
            for optimizer, given in list(self._optimizers.items()):
                self._move(optimizer, {rate * self._factor: rate for rate in given}, 1 / self._factor)

    def _meet(self, optimizer):
        """Before any schedule looks at it."""
        given = {settings["lr"] for settings in [optimizer.defaults] + optimizer.param_groups if isinstance(settings.get("lr"), (int, float))}
        self._optimizers[optimizer] = given
        if self._is_scaled:
            self._move(optimizer, {rate: rate * self._factor for rate in given}, self._factor)

    def _move(self, optimizer, rates, factor):
        """Each rate to its new one; one that a schedule has made of such a rate moves by the factor, and one that the program has set itself stays."""
        schedules = [schedule for schedule in self._schedules if schedule.optimizer is optimizer]
        if any(type(schedule).__name__ in RATES_OF_THEIR_OWN for schedule in schedules):
            return
        for settings in [optimizer.defaults] + optimizer.param_groups:
            began, now = settings.get("initial_lr"), settings.get("lr")
            if is_among(now, rates):
                settings["lr"] = rates[now]
            elif is_among(began, rates) and isinstance(now, (int, float)):
                settings["lr"] = now * factor
            if is_among(began, rates):
                settings["initial_lr"] = rates[began]
        for schedule in schedules:
            schedule.base_lrs = [rates[rate] if is_among(rate, rates) else rate for rate in schedule.base_lrs]
            schedule._last_lr = [group["lr"] for group in optimizer.param_groups]


def noting(tools, original, note):
    """An __init__ that tells of the new object, whatever becomes of the plan."""

    def __init__(self, *args, **kwargs):
        original(self, *args, **kwargs)
        if not tools.is_refused:
            tools.agent.attempt(note, self)

    return __init__


def is_among(rate, rates):
    """Whether it is one of these; a rate may be a tensor."""
    return isinstance(rate, (int, float)) and rate in rates
