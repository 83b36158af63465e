"""The runs that a command performs besides its own, because they were left unfinished in the same store."""

from callboard.bus.subjects import RunRef
from callboard.surfaces.cli.options import Settings
from callboard.surfaces.cli.output import say
from callboard.surfaces.cli.views import program, where_options


class OtherRuns:
    """Names each of them once, on stderr."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._known: set[str] = set()
        self._others: dict[str, None] = {}

    def leave_out(self, run: str) -> None:
        """Do not name a run: it is the command's own."""
        self._known.add(run)
        if run in self._others:
            del self._others[run]

    def hear(self, ref: RunRef, *, fresh: bool) -> None:
        """Take note that a run is performed here. A ``fresh`` one has only just been started."""
        if fresh or ref.run in self._known:
            self._known.add(ref.run)
            return
        self._known.add(ref.run)
        self._others[ref.run] = None
        command = f"{program()} cancel{where_options(self._settings)} {ref.run}"
        say(f"Run {ref.run}, which was left unfinished, continues here. End it with `{command}`.", err=True)

    def say_waiting(self, at_most_s: float) -> None:
        """Say that other runs are waited for."""
        names = ", ".join(self._others) or "child runs"
        say(f"Waiting at most {at_most_s:g} s for running effects of {names}.", err=True)
