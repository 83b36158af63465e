"""The state of a question, folded from one run's events: how it was asked, whether it is open, who answered it."""

import datetime as dt

from msgspec import Struct

from callboard.bus.events import EffectCancelled, Event, HumanAnswered, HumanAsked, HumanClosed, RunEnd, RunQuarantined
from callboard.projections.projection import known_payload

TYPES = tuple(one.type for one in (HumanAsked, HumanAnswered, HumanClosed, EffectCancelled, RunEnd, RunQuarantined))
"""The event types that the fold reads."""


class QuestionOutcome(Struct, frozen=True):
    """The state of a question. ``asked`` is None if it was never asked.

    ``outcome`` is how it was closed, empty while it is open. ``by`` and ``at`` are the person who gave the accepted
    answer, and its time.
    """

    asked: HumanAsked | None = None
    outcome: str = ""
    by: str = ""
    at: dt.datetime | None = None


class QuestionOutcomeFold:
    """Folds the events of one run into the state of one of its questions."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._asked: HumanAsked | None = None
        self._answers: dict[int, tuple[str, dt.datetime]] = {}
        self._outcome = ""
        self._counted: int | None = None

    def apply(self, event: Event) -> None:
        match known_payload(event):
            case HumanAsked() as asked if event.key == self._key:
                self._asked = asked
            case HumanAnswered(interaction=self._key, k=k, by=by):
                self._answers[k] = (by or "", event.time)
            case HumanClosed(outcome=outcome, k=k) if event.key == self._key:
                self._outcome, self._counted = outcome, k
            case EffectCancelled() if event.key == self._key:
                self._outcome = "cancelled"
            case RunEnd() | RunQuarantined():
                self._outcome = self._outcome or "ended"
            case _:
                pass

    def view(self) -> QuestionOutcome:
        by, at = self._answers.get(self._counted or 0, ("", None))
        return QuestionOutcome(self._asked, self._outcome, by, at)
