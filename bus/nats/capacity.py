"""Room: whether the stream is full, as the publishes of a process have shown."""

from collections.abc import Callable

import anyio

from callboard.bus.log.port import Full

FRESH_S = 1.0
"""For this time after a refused publish, other publishes are not attempted, because they would be refused too."""

TOLD_PAUSE_S = 10.0
"""Shortest time between two reports. Near the limit of a quota the state changes often, because small messages are
still stored and large ones are not."""


class StreamSpace:
    """The state of the space in a stream, as far as the process knows it."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[Full | None], None]] = []
        self._refused_at = 0.0
        self._told_at: float | None = None
        self._told = False
        self._silent_once = False
        self.full: Full | None = None
        """Why the stream accepts no messages; None if it does, according to the last publish."""
        self.closed: Full | None = None
        """Why nothing must be published although the stream would accept it: it would drop other messages for it."""

    def listen(self, listener: Callable[[Full | None], None]) -> None:
        """Call a function when the stream is found to be full, and with None when it no longer is."""
        self._listeners.append(listener)

    @property
    def in_doubt(self) -> bool:
        """Whether the stream was full or silent. The caller must then report the next success with `took`."""
        return self.full is not None or self._silent_once

    def note_refusal(self, full: Full) -> None:
        """Note that the stream refused a publish."""
        if full.failing and not self._silent_once:
            # After a single request without an answer, the answer may have been lost.
            self._silent_once = True
            return
        self.full = full
        now = self._refused_at = anyio.current_time()
        if not self._told and (self._told_at is None or now - self._told_at >= TOLD_PAUSE_S):
            self._told, self._told_at = True, now
            self._tell(full)

    def took(self) -> None:
        """Note that the stream accepted a publish."""
        self._silent_once = False
        self.full = None
        if self._told:
            self._told = False
            self._tell(None)

    def close(self, full: Full | None) -> None:
        """Stop all publishes, or (None) allow them again."""
        if (full is None) != (self.closed is None):
            self._tell(full)
        self.closed = full

    def check(self) -> None:
        """Check that publishes are allowed.

        :raises Full: if they are not
        """
        if self.closed is not None:
            raise self.closed

    def shut(self) -> Full | None:
        """Return why a publish would currently be refused, None if it should be attempted."""
        if self.closed is not None:
            return self.closed
        return self.full if anyio.current_time() - self._refused_at < FRESH_S else None

    def _tell(self, full: Full | None) -> None:
        for listener in self._listeners:
            listener(full)
