"""The inbox: who is waited for, for what, since when and until when, in one run of whatever language."""

import datetime as dt
from typing import Any, Literal

from msgspec import Struct

from callboard.bus.answer_schemas import answer_schema
from callboard.bus.effects import JSON
from callboard.bus.events import (
    Event,
    HumanAsked,
    Payload,
    RunAccepted,
    RunClaimed,
    RunParked,
    RunPaused,
    SignalAwaited,
    ToolCall,
)
from callboard.projections.projection import known
from callboard.projections.status import StatusFold

Kind = Literal["question", "pause", "tool", "signal"]


class Item(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Something that waits for somebody outside.

    ``who`` is the channel that a question goes to, empty for anybody; ``key`` is what an answer names, ``schema`` the
    JSON Schema of the response to a question; ``until`` is when it is too late, None if it never is, or nobody knows.
    """

    run: str
    definition: str
    language: str
    kind: Kind
    key: str
    path: str
    who: str = ""
    question: str = ""
    type: str = ""
    options: list[Any] = []
    schema: JSON = None
    name: str = ""
    data: JSON = None
    since: dt.datetime
    until: dt.datetime | None = None


class Inbox:
    """Folds one run into what stands open in it."""

    def __init__(self) -> None:
        self._status = StatusFold()
        self._definition, self._language = "", ""
        self._deadline: dt.datetime | None = None

    def apply(self, event: Event) -> None:
        payload = known(event)
        if payload is None:
            return
        self._status.apply(event, payload)
        match payload:
            case RunAccepted(definition=ref):
                self._definition = event.definition or ref.name or ref.hash[:12]
                self._language = ref.language
            case RunParked(deadline=deadline):
                self._deadline = deadline
            case RunClaimed():
                self._deadline = None
            case _:
                pass

    def view(self) -> list[Item]:
        return [item for each in self._status.open if (item := self._item(each.event, each.payload)) is not None]

    def _item(self, event: Event, payload: Payload) -> Item | None:
        match payload:
            case HumanAsked() as asked:
                fields: dict[str, Any] = {
                    "kind": "question",
                    "who": asked.channel_type or "",
                    "question": asked.question,
                    "type": asked.interaction_type,
                    "options": asked.options,
                    "schema": answer_schema(asked.options) if asked.schema is None else asked.schema,
                    "data": asked.request_data,
                    "until": asked.timeout_at,
                }
            case RunPaused() as paused:
                fields = {"kind": "pause", "name": paused.step or "", "until": paused.timeout_at or self._deadline}
            case ToolCall(via="caller") as call:
                fields = {"kind": "tool", "name": call.tool, "data": call.input, "until": self._deadline}
            case SignalAwaited() as awaited:
                fields = {"kind": "signal", "name": awaited.name, "data": awaited.match, "until": awaited.due}
            case _:
                return None
        return Item(
            run=event.run,
            definition=self._definition,
            language=self._language,
            key=event.key,
            path=event.path,
            since=event.time,
            **fields,
        )
