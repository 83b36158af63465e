"""Guiding those who watch a run: behind what is up to somebody stands the command that moves it."""

from callboard.bus.events import Event
from callboard.projections.projection import known
from callboard.runtime.cli.options import Settings
from callboard.runtime.cli.showing import Quietly, Shower
from callboard.runtime.cli.views import way_on


class Guiding(Quietly):
    """Shows as another shower does, and after a question, an awaited signal or a pause says what to type elsewhere."""

    def __init__(self, shower: Shower, run: str, settings: Settings) -> None:
        self._shower, self._run, self._settings = shower, run, settings

    def event(self, sequence: int, event: Event) -> None:
        self._shower.event(sequence, event)
        if command := way_on(event.type, event.key, self._run, self._settings, known(event)):
            self._shower.notice(f"In another terminal: {command}")
