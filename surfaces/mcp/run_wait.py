"""Awaiting: wait for the end of a run, and put its questions to the person at the client."""

from collections.abc import Sequence
from contextlib import suppress

import anyio

from callboard.bus import events as ev
from callboard.bus.errors import CallboardError
from callboard.bus.log.port import whole
from callboard.lib.json_types import JSON
from callboard.projections.lists.questions import Question, Questions
from callboard.projections.projection import fold, known_payload
from callboard.service.client.connection import Connection
from callboard.service.operations.narration import narrate
from callboard.service.operations.tells import send_command
from callboard.surfaces.http.access import check_sees
from callboard.surfaces.mcp import answers
from callboard.surfaces.mcp.caller import Caller
from callboard.surfaces.mcp.run_reports import run_of

_TOLD = frozenset(
    {
        ev.RunStart.type,
        ev.NodeEnter.type,
        ev.NodeExit.type,
        ev.NodeRetry.type,
        ev.NodeProgress.type,
        ev.NodeWarning.type,
    }
)
"""Events that are reported to callers that wait for a run's end."""


class Awaiting:
    """Waits for runs of one tenant."""

    def __init__(self, connection: Connection) -> None:
        self._client = connection.client

    async def run(self, run_id: str, wait_s: float, caller: Caller) -> answers.Run:
        """Wait for a run's end, put its questions to the person at the client, and return the run's state.

        :raises ApiError: if the caller may not see the run
        """
        events = await self._client.events(run_id)
        check_sees(caller.subject, events)
        after = 0
        while wait_s > 0 and events[-1].type not in ev.AT_REST:
            began = anyio.current_time()
            after = await self._heard(run_id, after, wait_s, caller)
            wait_s -= anyio.current_time() - began
            events = await self._client.events(run_id)
            for question in fold(Questions(), events):
                if caller.can_ask(question):
                    await self._put(question, caller)
        return run_of(events)

    async def _heard(self, run_id: str, after: int, wait_s: float, caller: Caller) -> int:
        """Report a run's events to the caller until it rests, asks a question, or the time is up.

        Return the sequence of the last event."""
        with anyio.move_on_after(wait_s):
            async with self._client.follow(run_id, after=after) as feed:
                async for recorded in feed:
                    event = await whole(self._client.log, recorded)
                    payload = known_payload(event)
                    after = recorded.sequence
                    if payload is not None and event.type in _TOLD:
                        await caller.report(narrate(event, payload))
                    if event.type in ev.AT_REST or (caller.asks and event.type == ev.HumanAsked.type):
                        break
        return after

    async def _put(self, question: Question, caller: Caller) -> None:
        """Put a question to the person at the client; withdraw it if the run closes it first."""
        answered, response = False, None
        error: Exception | None = None

        async def wait_closed() -> None:
            async with self._client.follow(question.run) as feed:
                async for recorded in feed:
                    event = recorded.event
                    ours = event.type == ev.HumanClosed.type and event.key == question.key
                    if ours or event.type in ev.AT_REST:
                        break
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait_closed)
            try:
                answered, response = await caller.ask(question)
            except Exception as caught:
                error = caught  # raised below: the task group would wrap it
            tasks.cancel_scope.cancel()
        if error is not None:
            raise error
        if answered:
            await self.send_answer(question, response, caller)

    async def send_answer(self, question: Question, response: JSON, caller: Caller) -> None:
        """Send the person's answer to the run; if the question has been answered already, the first answer counts."""
        answer = {"interaction": question.key, "user_response": response, "by": caller.known_as(), "channel": "mcp"}
        with suppress(CallboardError):
            await send_command(self._client, question.run, "answer", answer)

    async def questions(self, run_id: str) -> Sequence[Question]:
        """Return the open questions of a run.

        :raises UnknownRun: if the run does not exist
        """
        return fold(Questions(), await self._client.events(run_id))
