"""What became of each fix: the fact `fix`, of which the newest of an id counts."""

WAITING, IN_FORCE, REFUSED, UNDONE = "waiting", "in-force", "refused", "undone"


class Report:
    """Tells the state of fixes, each state once."""

    def __init__(self, agent):
        self._agent = agent
        self._told = {}
        self._is_closed = False

    def waiting(self, name, why):
        """It will be applied when the training gets there."""
        self._tell(name, WAITING, why)

    def in_force(self, name, what="", **details):
        """It is applied, and this was checked."""
        self._tell(name, IN_FORCE, what, **details)

    def refused(self, name, why):
        """It is not applied."""
        self._tell(name, REFUSED, why)

    def undone(self, name, why):
        """The program undid it later."""
        self._tell(name, UNDONE, why)

    def overrode(self, name, what):
        """The program set the opposite at this line; the plan wins."""
        self._agent.facts.add("fix_override", id=name, what=what, site=self._agent.sites.here())

    def state(self, name):
        """The newest state, or None."""
        return self._told.get(name, (None,))[0]

    def close(self):
        """What was said last counts."""
        self._is_closed = True

    def _tell(self, name, state, text, **details):
        if self._is_closed or self._told.get(name) == (state, text):
            return
        self._told[name] = (state, text)
        self._agent.facts.add("fix", id=name, state=state, text=text, **details)
