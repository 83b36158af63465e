"""Calls as runs: a coroutine of this process is performed as a workflow, by a worker on an embedded server.

Tests and examples of other libraries are code that is not a workflow with a name. A `Host` makes one of any coroutine:
the workflow `perform` looks the coroutine up in this process, and runs it.
"""

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import Context, copy_context
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from _pytest.outcomes import OutcomeException
from msgspec import Struct, field

from callboard import Runtime, workflow
from callboard.bus.effects import Failure
from callboard.bus.events import HumanAsked, payload_of

WAIT_S = 120.0

_NUMBERS = count(1)
_CALLS: dict[str, "HeldCall"] = {}


class Unanswered(Exception):
    """The call asks a person."""


class RunFailed(Exception):
    """The run of a call has failed, and the call itself has not raised anything."""

    def __init__(self, failure: Failure | None) -> None:
        super().__init__(f"{failure.code}: {failure.message}" if failure is not None else "the run ended without it")
        self.code = failure.code if failure is not None else ""


class HeldCall(Struct):
    """A call, and what it has returned or raised the last time that it was performed."""

    make: Callable[[], Awaitable[Any]]
    context: Context
    ended: bool = False
    value: Any = None
    raised: BaseException | None = None


@contextmanager
def holding(make: Callable[[], Awaitable[Any]]) -> Generator[tuple[str, HeldCall]]:
    """Keep a call for `perform`, with the context variables of the caller; under a number, which is its input."""
    number, call = str(next(_NUMBERS)), HeldCall(make, copy_context())
    _CALLS[number] = call
    try:
        yield number, call
    finally:
        del _CALLS[number]


@workflow
async def perform(number: str) -> None:
    """Perform a call of this process."""
    call = _CALLS[number]
    for variable, value in call.context.items():
        if variable not in copy_context():
            variable.set(value)
    try:
        call.value, call.raised = await call.make(), None
    except (Exception, OutcomeException) as error:
        # The caller raises it, as failed assertions of pytest.
        call.raised = error
    call.ended = True


class Performed(Struct):
    """A call that was performed: its value or exception, the run, and how many events of each type that has."""

    run_id: str
    events: Counter[str] = field(default_factory=Counter[str])
    value: Any = None
    raised: BaseException | None = None


class Host:
    """A worker and a server in a thread of this process, over the folder ``state``."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._ready: Future[None] = Future()
        self._thread = threading.Thread(target=asyncio.run, args=[self._serve()], daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.result(WAIT_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()

    async def _serve(self) -> None:
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        try:
            async with Runtime(
                data_dir=self._state, code=[sys.modules[__name__]], allow_scripts=True, sync="2s"
            ) as self._runtime:
                self._ready.set_result(None)
                await self._stopped.wait()
        except Exception as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)

    def perform(
        self,
        make: Callable[[], Awaitable[Any]],
        *,
        script: Mapping[str, Any] | None = None,
        answers: Mapping[str, Any] | None = None,
    ) -> Performed:
        """Perform what ``make`` returns as a run, with the context variables of the caller.

        ``answers`` are those to the questions of the run, by a part of the question's text. A call that asks another
        question is cancelled, and has raised `Unanswered`.
        """
        with holding(make) as (number, call):
            performing = asyncio.wait_for(self._perform(number, call, script, answers or {}), WAIT_S)
            return asyncio.run_coroutine_threadsafe(performing, self._loop).result()

    async def _perform(
        self, number: str, call: HeldCall, script: Mapping[str, Any] | None, answers: Mapping[str, Any]
    ) -> Performed:
        more: dict[str, Any] = {} if script is None else {"script": script}
        run = await self._runtime.start(registered="perform", input={"number": number}, **more)
        performed = Performed(run.id)
        unanswered: Unanswered | None = None
        async for event in run.events():
            performed.events[event.type] += 1
            if event.type != HumanAsked.type:
                continue
            asked = payload_of(event)
            text = asked.question if isinstance(asked, HumanAsked) else ""
            found = next((answer for part, answer in answers.items() if part in text), None)
            if found is not None:
                await run.answer(found, interaction=event.key)
            else:
                unanswered = Unanswered(text)
                await run.cancel("there is no answer to its question")
        performed.value, performed.raised = call.value, unanswered or call.raised
        if not call.ended and unanswered is None:
            performed.raised = RunFailed((await run.show()).error)
        return performed
