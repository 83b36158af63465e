"""Observing: a sink for replays that must not write: what the log does not hold is the end of what can be seen."""

import datetime as dt

from msgspec import Raw

from callboard.bus.events import SCHEMA_VERSION, Event, Payload, encode_payload
from callboard.bus.subjects import RunRef


class Observer:
    """A `callboard.runtime.stage.Sink` that keeps what a replay states beyond the log, and writes nothing.

    ``beyond`` are those events, as a worker would have appended them next. Payloads of a run with secrets compare as
    recorded only if ``seal`` is given the same replacements.
    """

    def __init__(self, ref: RunRef) -> None:
        self.beyond: list[Event] = []
        self._ref = ref
        self._time = dt.datetime.now(dt.UTC)

    def seal(self, payload: Payload) -> bytes:
        return encode_payload(payload)

    def write(self, event_type: str, payload: bytes, path: str, iteration: int, attempt: int, key: str) -> Event:
        event = Event(
            type=event_type,
            run=self._ref.run,
            n=0,
            epoch=0,
            v=SCHEMA_VERSION,
            time=self._time,
            path=path,
            iteration=iteration,
            attempt=attempt,
            key=key,
            payload=Raw(payload),
        )
        self.beyond.append(event)
        return event

    def clock(self) -> dt.datetime:
        return self._time

    def abandon(self, key: str) -> None:
        """Nothing is being carried out here."""

    def close_toolbox(self, key: str) -> None:
        """Nothing is open here."""


def watch_only(ref: RunRef) -> Observer:
    """Make the sink of a replay that only looks."""
    return Observer(ref)
