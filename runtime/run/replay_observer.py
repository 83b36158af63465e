"""Observers: a sink for replays that must not write; it collects the events that a replay states beyond the log."""

import datetime as dt
from collections.abc import Mapping

from callboard.bus.events import Event, Payload
from callboard.bus.log.memory import MemoryLog
from callboard.bus.subjects import RunRef
from callboard.runtime.run.log import RunLog


class Observer:
    """A `callboard.runtime.interpreter.ledger.Sink` over a run's events up to ``last``.

    ``beyond`` has the events that a worker would append next, with the same numbers. Pass the ``secrets`` that were
    replaced in the log, so that requested events are compared with the recorded ones in the same form.
    """

    observes = True

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
        """Do nothing: an observer carries out no effects."""

    def close_toolbox(self, key: str) -> None:
        """Do nothing: an observer has no sessions."""
