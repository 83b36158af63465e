"""New runs: a run whose first event is stored by its actor, in one batch with the events of its first turn.

Admission builds the first event and waits until the actor has stored it. If the actor cannot store it, nothing of the
run is stored, and admission stores the first event itself: a log that refuses it there has the reason.
"""

import anyio

from callboard.bus import events as ev
from callboard.bus.errors import LogUnavailable, StoreFull
from callboard.bus.log.port import FirstCommand, NoAnswer
from callboard.bus.subjects import RunRef


class NewRun:
    """The first event of a new run, and whether it is stored.

    ``definition`` is the definition's token in subjects, ``cause`` the stream sequence of the start message.
    ``command`` activates the run and is stored together with its first event.
    """

    def __init__(
        self, ref: RunRef, accepted: ev.RunAccepted, *, definition: str, cause: int, command: FirstCommand
    ) -> None:
        self.ref = ref
        self.accepted = accepted
        self.definition = definition
        self.cause = cause
        self.command = command
        self.stored = False
        self._error: StoreFull | LogUnavailable | NoAnswer | None = None
        self._settled = anyio.Event()

    def note_stored(self) -> None:
        """Note that the first event is stored."""
        self.stored = True
        self._settled.set()

    def note_unstored(self, error: Exception | None = None) -> None:
        """Note that the actor has ended without storing the first event; without effect if it is stored."""
        if isinstance(error, StoreFull | LogUnavailable | NoAnswer):
            self._error = error
        self._settled.set()

    async def wait_until_stored(self) -> bool:
        """Wait for the actor; return whether it has stored the first event.

        :raises StoreFull: if the store is full
        :raises LogUnavailable: if the log did not answer for too long
        :raises NoAnswer: if the log did not answer
        """
        await self._settled.wait()
        if self._error is not None:
            raise self._error
        return self.stored
