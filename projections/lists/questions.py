"""The open questions to people in all runs, folded only from ``human.*`` events and the ends of runs."""

import datetime as dt
from typing import Any

from msgspec import Struct

from callboard.bus.answer_schemas import answer_schema, choice
from callboard.bus.events import (
    Event,
    HumanAsked,
    HumanClosed,
    RunEnd,
    RunQuarantined,
)
from callboard.lib.json_types import JSON
from callboard.projections.projection import known_payload

TYPES = (HumanAsked.type, HumanClosed.type, RunEnd.type, RunQuarantined.type)
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


class Questions:
    """Folds many runs, each in its order, into the open questions, the oldest first.

    Above ``open_max`` questions, the fold drops those of the run that has waited longest. They remain in the log.
    """

    def __init__(self, open_max: int | None = None) -> None:
        self._open: dict[str, dict[str, Question]] = {}
        self._count = 0
        self._open_max = open_max

    def apply(self, event: Event) -> None:
        if event.type not in TYPES or (event.type != HumanAsked.type and event.run not in self._open):
            return
        match known_payload(event):
            case HumanAsked() as asked:
                self._ask(event, asked)
            case HumanClosed():
                self._close(event.run, event.key)
            case RunEnd() | RunQuarantined():
                for key in list(self._open[event.run]):
                    self._close(event.run, key)
            case _:
                pass

    def view(self) -> list[Question]:
        return sorted((one for ours in self._open.values() for one in ours.values()), key=lambda one: one.since)

    def _ask(self, event: Event, asked: HumanAsked) -> None:
        ours = self._open.setdefault(event.run, {})
        self._count += event.key not in ours
        ours[event.key] = _question(event, asked)
        if self._open_max is not None and self._count > self._open_max:
            oldest = next(iter(self._open.values()))
            first = next(iter(oldest.values()))
            self._close(first.run, first.key)

    def _close(self, run: str, key: str) -> None:
        ours = self._open[run]
        if ours.pop(key, None) is not None:
            self._count -= 1
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
