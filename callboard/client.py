"""The client for programs: it starts runs on a running server, and controls them.

It adds to `callboard.runtime.client.client` what a program needs: settings, definitions from files, and a handle for
each run, with which the program waits for the run, reads its events and sends it commands.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import Any, Self, Unpack

import anyio.to_thread

from callboard.bus.events import Event, Problem, RunEnd, RunQuarantined
from callboard.bus.log.port import whole
from callboard.projections.lists.questions import TYPES, Question, Questions
from callboard.projections.run.run_result import RunResult
from callboard.runtime.client.client import Client as Messages
from callboard.runtime.client.client import UnknownRun
from callboard.runtime.client.connection import Connection
from callboard.runtime.client.errors import RequestRefused
from callboard.runtime.settings import logs
from callboard.runtime.settings.config import Config, load
from callboard.service.operations.folding import fold_once
from callboard.service.operations.reach import reach
from callboard.service.operations.results import result_of
from callboard.service.operations.tells import send_command
from callboard.start_options import Start, Startable, start_message


class Client:
    """A connection to a running server: ``async with Client(nats_url="nats://…") as client``.

    Settings are those of ``docs/reference/configuration.md``. Missing settings are read from the environment and
    ``callboard.toml``, as on the command line. Without ``nats_url``, the client connects to the server that runs over
    ``data_dir``. Unless the program has configured structlog, warnings and errors are logged to stderr.
    """

    def __init__(self, **settings: Any) -> None:
        self._settings: Mapping[str, Any] = settings
        self._stack = AsyncExitStack()
        self._messages: Messages | None = None
        self._worker = ""

    async def __aenter__(self) -> Self:
        """Connect.

        :raises ConfigInvalid: with every problem of the settings
        :raises NoServer: if no server is named and none runs over the data directory
        :raises OperatorError: if the server is not usable for another reason
        """
        config = load(arguments=self._settings).absolute()
        async with AsyncExitStack() as stack:
            self._messages = (await self._open(stack, config)).client
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._messages = None
        await self._stack.__aexit__(kind, error, traceback)

    async def _open(self, stack: AsyncExitStack, config: Config) -> Connection:
        logs.configure_for_client()
        logs.keep_out(config.secrets())
        return await stack.enter_async_context(reach(config, reads=False, name="callboard client"))

    def _connect(self) -> Messages:
        if self._messages is None:
            raise RuntimeError(f"a {type(self).__name__} is connected only within its `async with`")
        return self._messages

    async def start(self, file: Startable | None = None, **start: Unpack[Start]) -> "Run":
        """Start a run and return its handle. The run is admitted and durable when this returns.

        ``file`` is the file of the definition. ``start`` has the other options, and the definition if there is no file.

        :raises RequestRefused: with every problem of the definition, or of the start
        :raises UsageInvalid: if there is not exactly one definition
        :raises NoVerdict: if no worker admitted or rejected it in time
        :raises StoreFull: if the store has no space for it
        :raises NoAnswer: if the log did not answer
        """
        messages = self._connect()
        made = await anyio.to_thread.run_sync(partial(start_message, file, start))
        verdict = await messages.start(made.message, worker=self._worker)
        if verdict.status == "rejected" or verdict.run_id is None:
            raise RequestRefused("start", verdict.problems, str(file or ""), made.source)
        return Run(messages, verdict.run_id, warnings=[*made.warnings, *verdict.warnings])

    def get_run(self, run_id: str) -> "Run":
        """Return the handle of an existing run, which any client may have started."""
        return Run(self._connect(), run_id)

    async def questions(self) -> list[Question]:
        """Return the open questions of all runs, the oldest first.

        :raises NoAnswer: if the log did not answer
        """
        messages = self._connect()
        filters = [messages.log.subjects.events(messages.tenant, event_type=one) for one in TYPES]
        return await fold_once(messages.log, filters, Questions())


class Run:
    """The handle of one run, made by a client: its ``id``, and the ``warnings`` of its admission.

    Methods that send a command return the event that records it. They return None if the run did not record the command
    within five seconds. The command is then stored and will be delivered.
    """

    def __init__(self, messages: Messages, id: str, *, warnings: list[Problem] | None = None) -> None:
        self.id = id
        self.warnings = warnings or []
        self._messages = messages

    def __repr__(self) -> str:
        return f"<Run {self.id}>"

    # -- reading ------------------------------------------------------------------------------------------------------

    async def result(self) -> RunResult:
        """Wait until the run has ended, and return its result; if other runs continue it, that of the last one.

        :raises UnknownRun: if the run does not exist
        """
        result = result_of([event async for event in self.events()])
        while result.continued_as:
            await self._messages.await_admission(result.continued_as)
            successor = Run(self._messages, result.continued_as)
            result = result_of([event async for event in successor.events()])
        return result

    async def show(self) -> RunResult:
        """Return the current state of the run.

        :raises UnknownRun: if the run does not exist
        """
        return result_of(await self._messages.events(self.id))

    async def events(self) -> AsyncGenerator[Event]:
        """Yield the run's events, past and new ones, until it has ended or is quarantined.

        :raises UnknownRun: if the run does not exist
        """
        log, ref = self._messages.log, self._messages.ref(self.id)
        if await log.last(ref) is None:
            raise UnknownRun(ref)
        async with self._messages.follow(self.id) as feed:
            async for recorded in feed:
                if not recorded.readable:
                    continue
                event = await whole(log, recorded)
                yield event
                if event.type in (RunEnd.type, RunQuarantined.type):
                    return

    # -- commands -----------------------------------------------------------------------------------------------------

    async def answer(
        self, response: Any, *, interaction: str = "", data: Any = None, by: str | None = None, id: str | None = None
    ) -> Event | None:
        """Answer the open question. ``interaction``, the key of the question's event, selects one of several.

        A command that is repeated with the same ``id`` acts only once and returns the event of the first time. This
        holds for all commands.

        :raises NotTaken: if the answer is invalid or too late
        :raises CallboardError: if no question is open
        """
        return await self._tell(
            "answer", interaction=interaction, user_response=response, response_data=data, by=by, id=id
        )

    async def signal(
        self, name: str, data: Any = None, *, by: str | None = None, id: str | None = None
    ) -> Event | None:
        """Send the run a signal. The run keeps a signal that it does not await yet."""
        return await self._tell("signal", name=name, data=data, by=by, id=id)

    async def cancel(self, reason: str = "", *, by: str | None = None, id: str | None = None) -> Event | None:
        """Cancel the run: stop its effects, run its clean-up, and end it with the status cancelled."""
        return await self._tell("cancel", reason=reason, by=by, id=id)

    async def pause(self, reason: str = "", *, by: str | None = None, id: str | None = None) -> Event | None:
        """Pause the run before its next node, or effect in a workflow in Python."""
        return await self._tell("pause", reason=reason, by=by, id=id)

    async def resume(
        self, variables: Mapping[str, Any] | None = None, *, by: str | None = None, id: str | None = None
    ) -> Event | None:
        """Resume a paused run, and override variables if its language has any."""
        return await self._tell("resume", variables=dict(variables or {}), by=by, id=id)

    async def kill(self, reason: str = "", *, by: str | None = None, id: str | None = None) -> Event | None:
        """End the run at once, without clean-up."""
        return await self._tell("kill", reason=reason, by=by, id=id)

    async def _tell(self, verb: str, **fields: Any) -> Event | None:
        return (await send_command(self._messages, self.id, verb, fields)).recorded
