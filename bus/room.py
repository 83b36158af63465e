"""Room: whether the stream is full, learned from publishes that were refused or taken, for a whole process to know."""

from collections.abc import Callable

import anyio

from callboard.bus.log import Full

FRESH_S = 1.0
"""So long after somebody was turned away others need not try: they would be, too."""

TOLD_PAUSE_S = 10.0
"""Shortest time between two reports: near the end of a quota small messages get in, and large ones do not."""


class Room:
    """What is known about the room in a stream."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[Full | None], None]] = []
        self._refused_at = 0.0
        self._told_at: float | None = None
        self._told = False
        self._silent_once = False
        self.full: Full | None = None
        """Why the stream takes nothing in; None if it does, as far as anybody knows."""
        self.closed: Full | None = None
        """Why nothing is to be brought in, though the stream would take it: it would drop something else for it."""

    def listen(self, listener: Callable[[Full | None], None]) -> None:
        """Have a function called once the stream is found full, and with None once it no longer is."""
        self._listeners.append(listener)

    @property
    def in_doubt(self) -> bool:
        """Whether the stream was found full, or silent: then the next success is to be told to `took`."""
        return self.full is not None or self._silent_once

    def refused(self, full: Full) -> None:
        """Take notice that something was not taken in."""
        if full.failing and not self._silent_once:
            # A single silence may have been an answer that got lost.
            self._silent_once = True
            return
        self.full = full
        now = self._refused_at = anyio.current_time()
        if not self._told and (self._told_at is None or now - self._told_at >= TOLD_PAUSE_S):
            self._told, self._told_at = True, now
            self._tell(full)

    def took(self) -> None:
        """Take notice that something was taken in."""
        self._silent_once = False
        self.full = None
        if self._told:
            self._told = False
            self._tell(None)

    def close(self, full: Full | None) -> None:
        """Let nothing in any more, or (None) again whatever the stream takes."""
        if (full is None) != (self.closed is None):
            self._tell(full)
        self.closed = full

    def check(self) -> None:
        """:raises Full: if nothing is to be brought in"""
        if self.closed is not None:
            raise self.closed

    def shut(self) -> Full | None:
        """Return why there is no use in trying just now, None if it is worth a try."""
        if self.closed is not None:
            return self.closed
        return self.full if anyio.current_time() - self._refused_at < FRESH_S else None

    def _tell(self, full: Full | None) -> None:
        for listener in self._listeners:
            listener(full)
