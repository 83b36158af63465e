"""Guiding those who watch a run: after what is up to someone stands the command that moves it."""

from callboard.bus.events import AT_REST, Event, HumanAsked
from callboard.projections.lists.question_data import data_lines
from callboard.projections.projection import known_payload
from callboard.projections.run.intents import OpenIntents
from callboard.surfaces.cli.event_output import Quietly, Shower
from callboard.surfaces.cli.options import Settings
from callboard.surfaces.cli.views import way_on


class Guiding(Quietly):
    """Shows as another shower does, and after a question, an awaited signal or a pause says what to type elsewhere.

    Up to the sequence ``past`` all has happened before: only what is open at its end is still up to someone.
    """

    def __init__(self, shower: Shower, run: str, settings: Settings, past: int = 0) -> None:
        self._shower, self._run, self._settings = shower, run, settings
        self._past = past
        self._open = OpenIntents()

    def event(self, sequence: int, event: Event) -> None:
        self._shower.event(sequence, event)
        if sequence > self._past:
            self.guide(event)
            return
        if (payload := known_payload(event)) is not None:
            self._open.apply(event, payload)
        if sequence == self._past and event.type not in AT_REST:
            for opened in self._open:
                self.guide(opened.event)

    def guide(self, event: Event) -> None:
        """Say what to type elsewhere to move what an event opens, if it opens anything; of a question, what it is
        about too."""
        payload = known_payload(event)
        if isinstance(payload, HumanAsked) and (about := data_lines(payload.request_data, payload.question)):
            self._shower.notice("\n".join(f"  {line}" for line in about))
        if command := way_on(event.type, event.key, self._run, self._settings, payload):
            self._shower.notice(f"In another terminal: {command}")
