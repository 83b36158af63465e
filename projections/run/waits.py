"""The waits of a run for input from outside, except its questions to people."""

import datetime as dt
from typing import Any, Literal

from msgspec import Struct

from callboard.bus.events import Event, Payload, RunClaimed, RunParked, RunPaused, SignalAwaited, ToolCall
from callboard.lib.json_types import JSON
from callboard.projections.projection import known_payload
from callboard.projections.run.status import StatusFold

Kind = Literal["pause", "tool", "signal"]


class OpenWait(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A pause, a tool that a caller answers, or a signal. An answer names ``key``.

    ``until`` is the deadline, None if there is no known deadline.
    """

    run: str
    kind: Kind
    key: str
    path: str
    name: str = ""
    data: JSON = None
    since: dt.datetime
    until: dt.datetime | None = None


class OpenWaits:
    """Folds one run into its waits."""

    def __init__(self) -> None:
        self._status = StatusFold()
        self._deadline: dt.datetime | None = None

    def apply(self, event: Event) -> None:
        payload = known_payload(event)
        if payload is None:
            return
        self._status.apply(event, payload)
        match payload:
            case RunParked(deadline=deadline):
                self._deadline = deadline
            case RunClaimed():
                self._deadline = None
            case _:
                pass

    def view(self) -> list[OpenWait]:
        return [wait for each in self._status.open if (wait := self._wait(each.event, each.payload)) is not None]

    def _wait(self, event: Event, payload: Payload) -> OpenWait | None:
        match payload:
            case RunPaused() as paused:
                fields: dict[str, Any] = {
                    "kind": "pause",
                    "name": paused.step or "",
                    "until": paused.timeout_at or self._deadline,
                }
            case ToolCall(via="caller") as call:
                fields = {"kind": "tool", "name": call.tool, "data": call.input, "until": self._deadline}
            case SignalAwaited() as awaited:
                fields = {"kind": "signal", "name": awaited.name, "data": awaited.match, "until": awaited.due}
            case _:
                return None
        return OpenWait(run=event.run, key=event.key, path=event.path, since=event.time, **fields)
