"""Observing: a sink for replays that must not write: it keeps to itself what a replay states beyond the log."""

import datetime as dt
from collections.abc import Mapping

from callboard.bus.events import Event, Payload
from callboard.bus.log.memory import MemoryLog
from callboard.bus.subjects import RunRef
from callboard.runtime.run.log import RunLog


class Observer:
    """A `callboard.runtime.interpreter.ledger.Sink` over a run's events up to ``last``.

    ``beyond`` are the events that a worker would have appended next, numbered as it would have. Where secrets were
    replaced in the log, the same are to be given here, so that what is asked for again is compared in the same form.
    """

    def __init__(self, ref: RunRef, last: Event, secrets: Mapping[str, str] | None = None) -> None:
        self.beyond: list[Event] = []
        self._runlog = RunLog(MemoryLog(), ref, writer="observer", clock=lambda: last.time)
        self._runlog.n = last.n
        self._runlog.keep_secret(secrets or {})

    def seal(self, payload: Payload) -> bytes:
        return self._runlog.seal(payload)

    def write(
        self, event_type: str, payload: bytes, path: str, iteration: int, attempt: int, key: str, source: str = ""
    ) -> Event:
        event = self._runlog.write(event_type, payload, path, iteration, attempt, key, source)
        self.beyond.append(event)
        return event

    def clock(self) -> dt.datetime:
        return self._runlog.clock()

    def abandon(self, key: str) -> None:
        """Nothing is being carried out here."""

    def close_toolbox(self, key: str) -> None:
        """Nothing is open here."""
