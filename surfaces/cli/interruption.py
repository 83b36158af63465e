"""Interrupting a run that is being performed: its cancellation, and what someone leaves after who does not wait."""

import anyio

from callboard.bus import events as ev
from callboard.bus.commands import Cancel
from callboard.bus.errors import CallboardError
from callboard.bus.log.port import NoAnswer
from callboard.service.api.client import Client, NoVerdict

LEAVING_WAIT_S = 1.0
"""How long someone who leaves waits until the cancellation is on its way."""


class Cancellation:
    """The cancellation of a run, by an interruption of the command that performs it."""

    def __init__(self, client: Client, run: str) -> None:
        self._client = client
        self._run = run
        self._said = anyio.Event()
        self._fault: str | None = "there was no time"

    async def ask(self) -> str | None:
        """Tell the run; return why that was not possible, if so."""
        try:
            verdict = await self._client.tell(self._run, "cancel", Cancel(reason="callboard run was interrupted"))
            self._fault = "; ".join(str(problem) for problem in verdict.problems) or None
        except NoVerdict:
            # It is in the stream: whoever admits it next finds it there.
            self._fault = None
        except (CallboardError, NoAnswer) as error:
            self._fault = str(error)
        self._said.set()
        return self._fault

    async def on_its_way(self) -> None:
        """Wait until the run has been told, but not for long."""
        with anyio.move_on_after(LEAVING_WAIT_S):
            await self._said.wait()

    async def left_behind(self) -> str | None:
        """Say what becomes of a run whose performance was left; None if it has ended."""
        ref = self._client.ref(self._run)
        try:
            last = await self._client.log.last(ref)
            requested = await self._client.log.last_of_type(ref, ev.CancelRequested.type)
        except NoAnswer as error:
            return f"Left run {self._run}. Whether its cancellation is recorded is not known: {error}"
        if last is not None and last.event.type == ev.RunEnd.type:
            return None
        if requested is not None:
            return f"Left run {self._run}. Its cancellation is recorded; the next worker carries it out."
        if self._fault is None:
            return (
                f"Left run {self._run}. Its cancellation is on its way; the next worker records it and carries it out."
            )
        return f"Left run {self._run}, which is not cancelled ({self._fault}): the next worker goes on with it."
