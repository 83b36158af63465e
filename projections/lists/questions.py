"""The questions to people in all runs, open and closed, folded only from ``human.*`` events and the ends of runs; and
the state of one question, folded from its run's events: how it was asked, whether it is open, who answered it.
"""

import datetime as dt
from collections import deque
from typing import Any, Literal

import msgspec
from msgspec import Struct

from callboard.bus.answer_schemas import answer_schema, choice
from callboard.bus.events import EffectCancelled, Event, HumanAnswered, HumanAsked, HumanClosed, RunEnd, RunQuarantined
from callboard.lib.json_types import JSON
from callboard.projections.projection import known_payload

TYPES = (HumanAsked.type, HumanAnswered.type, HumanClosed.type, RunEnd.type, RunQuarantined.type)
"""The event types that the fold reads. It skips all others."""


class Option(Struct, frozen=True):
    """One of the answers that a question offers: its value, and the label that is shown."""

    value: JSON
    label: str


class Question(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An open question. An answer names its ``run`` and its ``key``.

    ``who`` is the channel that it is sent to, empty if anyone may answer. ``schema`` is the JSON Schema of the answer.
    ``until`` is the deadline, if it has one.
    """

    run: str
    definition: str
    key: str
    path: str
    n: int
    who: str = ""
    question: str
    type: str
    options: list[Option] = []
    schema: JSON
    data: JSON = None
    since: dt.datetime
    until: dt.datetime | None = None
    timeout_action: str | None = None


class ClosedQuestion(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A question that is no longer open.

    ``answer`` and ``data`` are those of the answer that closed it, ``by`` and ``channel`` say who gave it and where;
    ``cut`` is true if the answer is longer than `ANSWER_BYTES_MAX` and only the log has it. ``n`` is the number of the
    event that asked. ``outcome`` is ``ended`` if the run ended while the question was open.
    """

    run: str
    definition: str
    key: str
    path: str
    n: int
    who: str = ""
    question: str
    type: str
    outcome: Literal["answered", "timeout", "cancelled", "ended"]
    answer: JSON = None
    data: JSON = None
    cut: bool = False
    by: str | None = None
    channel: str | None = None
    since: dt.datetime
    closed_at: dt.datetime


ANSWER_BYTES_MAX = 4_096
"""The size of the largest answer that a closed question includes, as JSON."""


class Questions:
    """Folds many runs, each in its order, into the open questions, the oldest first.

    Of the closed questions it keeps the last ``closed_max``.
    """

    def __init__(self, closed_max: int = 0) -> None:
        self._closed: deque[ClosedQuestion] = deque(maxlen=closed_max)
        self._answers: dict[tuple[str, str], dict[int, tuple[HumanAnswered, bool]]] = {}
        self._open: dict[str, dict[str, Question]] = {}

    def apply(self, event: Event) -> None:
        if event.type not in TYPES or (event.type != HumanAsked.type and event.run not in self._open):
            return
        match known_payload(event):
            case HumanAsked() as asked:
                self._ask(event, asked)
            case HumanAnswered() as answered if answered.interaction in self._open[event.run]:
                self._keep_answer(event, answered)
            case HumanClosed() as closed:
                self._record(event, event.key, closed.outcome, closed.k)
                self._close(event.run, event.key)
            case RunEnd() | RunQuarantined():
                for key in list(self._open[event.run]):
                    self._record(event, key, "ended", None)
                    self._close(event.run, key)
            case _:
                pass

    def view(self) -> list[Question]:
        return sorted((one for ours in self._open.values() for one in ours.values()), key=lambda one: one.since)

    def list_closed(self) -> list[ClosedQuestion]:
        """Return the closed questions, the last one first."""
        return list(reversed(self._closed))

    def _keep_answer(self, event: Event, answered: HumanAnswered) -> None:
        if self._closed.maxlen:
            cut = len(bytes(event.payload)) > ANSWER_BYTES_MAX
            kept = msgspec.structs.replace(answered, user_response=None, response_data=None) if cut else answered
            self._answers.setdefault((event.run, answered.interaction), {})[answered.k] = kept, cut

    def _record(
        self, event: Event, key: str, outcome: Literal["answered", "timeout", "cancelled", "ended"], k: int | None
    ) -> None:
        answers = self._answers.pop((event.run, key), {})
        asked = self._open[event.run].get(key)
        if asked is None or not self._closed.maxlen:
            return
        answered, cut = answers.get(k, (None, False)) if k is not None else (None, False)
        self._closed.append(
            ClosedQuestion(
                run=asked.run,
                definition=asked.definition,
                key=key,
                path=asked.path,
                n=asked.n,
                who=asked.who,
                question=asked.question,
                type=asked.type,
                outcome=outcome,
                answer=answered.user_response if answered else None,
                data=answered.response_data if answered else None,
                cut=cut,
                by=answered.by if answered else None,
                channel=answered.channel if answered else None,
                since=asked.since,
                closed_at=event.time,
            )
        )

    def _ask(self, event: Event, asked: HumanAsked) -> None:
        self._open.setdefault(event.run, {})[event.key] = _question(event, asked)

    def _close(self, run: str, key: str) -> None:
        ours = self._open[run]
        self._answers.pop((run, key), None)
        ours.pop(key, None)
        if not ours:
            del self._open[run]


def _question(event: Event, asked: HumanAsked) -> Question:
    options: list[Any] = asked.options
    return Question(
        run=event.run,
        definition=event.definition,
        key=event.key,
        path=event.path,
        n=event.n,
        who=asked.channel_type or "",
        question=asked.question,
        type=asked.interaction_type,
        options=[Option(*choice(option)) for option in options],
        schema=answer_schema(options) if asked.schema is None else asked.schema,
        data=asked.request_data,
        since=event.time,
        until=asked.timeout_at,
        timeout_action=asked.timeout_action,
    )


OUTCOME_TYPES = tuple(
    one.type for one in (HumanAsked, HumanAnswered, HumanClosed, EffectCancelled, RunEnd, RunQuarantined)
)
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
