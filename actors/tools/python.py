"""The transport of Python tools: plain functions, run in separate processes so that a tool cannot harm the worker.

A process runs one call at a time; simultaneous calls get separate processes (up to `HOSTS_MAX`), and idle processes are
reused. A call that hangs is ended with its process, and so is a cancelled one. Functions are imported from the working
directory and the worker's ``sys.path``, in such a process also when they are listed: an import that hangs or exits does
not stall the worker. Tools' prints go to the structured log, and their end into the failure of a call.

An output is any value with a JSON form: JSON values, dataclasses, pydantic models, dates, UUIDs, sets. NaN and infinity
have no JSON form.
"""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import structlog

from callboard.actors.lending.variables import SHIPPED
from callboard.actors.tools.failures import describe_error, last_words, tool_failed, with_printed
from callboard.actors.tools.lent import fill
from callboard.actors.tools.python_frames import Call, Describe, Described, Logged, Refused, Reported, Returned, Setup
from callboard.actors.tools.python_process import HostDied, HostProcess
from callboard.actors.tools.stderr import Redact
from callboard.actors.tools.tool import ToolCallContext, ToolEnvironment, ToolFailed
from callboard.bus import tracecontext
from callboard.bus.effects import PythonTools, ToolSpec
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_types import JSON

HOSTS_MAX = 8
"""How many calls of one source run at the same time; further calls wait for a process."""

_log: Any = structlog.get_logger("callboard.tools.python")


@asynccontextmanager
async def open_python(source: PythonTools, environment: ToolEnvironment) -> AsyncGenerator["PythonTransport"]:
    """Open a source of Python tools: import the functions in a first process and list them.

    :raises ToolFailed: ``tool.unavailable`` if a function cannot be found, imported or described
    """
    config = fill(source.config, environment.env, "the configuration of the Python tools")
    if any(path.startswith(SHIPPED) for path in source.functions.values()):
        # The worker's environment sets a connector's address, even if the source leaves it out.
        config |= environment.lending.addresses()
    transport = PythonTransport(source, config, environment)
    try:
        await transport.describe()
        yield transport
    finally:
        await transport.close()


async def _kill_process(host: HostProcess | None, redact: Redact) -> str:
    """Kill a process that is not needed any longer, if there is one; return what it had printed."""
    if host is None:
        return ""
    await host.kill()
    return await host.printed_text(redact)


class _Overdue(Exception):
    """There was no answer in time; ``printed`` is the text printed until then."""

    def __init__(self, printed: str) -> None:
        super().__init__("no answer in time")
        self.printed = printed


class PythonTransport:
    """An open source of Python tools."""

    def __init__(self, source: PythonTools, config: dict[str, str], environment: ToolEnvironment) -> None:
        self.specs: list[ToolSpec] = []
        self.warnings: list[tuple[str, str, str]] = []
        self._timeout_s = environment.seconds(source)
        self._environment = environment
        path = [str(Path.cwd()), *(entry for entry in sys.path if entry)]
        self._setup = Setup(source.functions, config, path)
        self._slots = anyio.Semaphore(HOSTS_MAX)
        self._idle: list[HostProcess] = []
        self._busy: set[HostProcess] = set()
        self._closed = False

    async def describe(self) -> None:
        """Fill in ``specs``.

        :raises ToolFailed: ``tool.unavailable``
        """
        names = ", ".join(sorted(self._setup.functions))
        try:
            answer = await self._ask(Describe(), ToolCallContext("", "", ""))
        except _Overdue as overdue:
            message = f"the modules of the Python tools {names} took more than {self._timeout_s:g} s to import"
            message = f"{message}; nothing in them may block at import"
            raise tool_failed("tool.unavailable", message, printed=overdue.printed) from None
        except HostDied as died:
            message = f"the process that imports the Python tools {names} {died}{last_words(died.printed)}"
            raise tool_failed("tool.unavailable", message, printed=died.printed) from died
        except OSError as error:
            message = f"no process can be started that imports the Python tools {names}: {describe_error(error)}"
            raise tool_failed("tool.unavailable", message, retryable=True) from error
        match answer:
            case Described(specs):
                self.specs = specs
            case Refused(failure, traceback):
                _log.info("tool.unavailable", message=failure.message, traceback=traceback)
                raise ToolFailed(failure)
            case Returned():
                raise tool_failed("tool.unavailable", f"the process of the Python tools {names} answered out of turn")

    async def call(self, tool: str, input: JSON, context: ToolCallContext) -> JSON:
        """Call a function with a JSON object.

        :raises ToolFailed: ``tool.failed`` if it raises, ``tool.timeout``, ``tool.crashed`` if its process dies,
            ``tool.bad_output``, ``tool.output_too_large``, ``tool.invalid_input``, ``tool.unknown``
        """
        if tool not in self._setup.functions:
            raise tool_failed("tool.unknown", f"no Python function serves a tool named {tool}")
        request = Call(
            tool,
            msgspec.json.encode(input),
            context.run,
            context.path,
            context.idempotency_key,
            self._environment.output_bytes_max,
            tracecontext.headers().get(tracecontext.TRACEPARENT, ""),
        )
        try:
            answer = await self._ask(request, context)
        except _Overdue as overdue:
            timeout_s = self._seconds(context)
            message = f"tool {tool} did not end within {timeout_s:g} s and was killed"
            raise tool_failed("tool.timeout", message, {"timeout_s": timeout_s}, printed=overdue.printed) from None
        except HostDied as died:
            message = f"the process of tool {tool} {died}{last_words(died.printed)}"
            raise tool_failed("tool.crashed", message, printed=died.printed) from died
        except OSError as error:
            message = f"no process can be started for tool {tool}: {describe_error(error)}"
            raise tool_failed("tool.unavailable", message, retryable=True) from error
        match answer:
            case Returned(output):
                return decode_json(output)
            case Refused(failure, traceback):
                # The run gets the part of the traceback that its author can use; the log gets all of it.
                _log.info(failure.code, tool=tool, path=context.path, run=context.run, traceback=traceback)
                raise ToolFailed(failure)
            case Described():
                raise tool_failed("tool.crashed", f"the process of tool {tool} answered out of turn")

    async def _ask(self, request: Describe | Call, context: ToolCallContext) -> Described | Returned | Refused:
        """Have a process of the pool answer a request; afterwards it is back in the pool, or dead.

        Every failure includes the text that was printed.

        :raises _Overdue: if there is no answer within the time limit, waiting for a free process not counted
        :raises HostDied: if the process ends before it has answered
        :raises OSError: if no process can be started
        """
        log = _log.bind(tool=getattr(request, "tool", None), run=context.run, path=context.path)

        def heard(event: Reported | Logged) -> None:
            if isinstance(event, Reported):
                context.on_progress(event.line)
            else:
                log.log(event.level, "tool.log", message=event.message)

        redact = self._environment.redact
        async with self._slots:
            taken: HostProcess | None = None
            try:
                with anyio.fail_after(self._seconds(context)):
                    taken = host = await self._take()
                    answer = await host.ask(request, heard)
            except TimeoutError:
                raise _Overdue(await _kill_process(taken, redact)) from None
            except HostDied as died:
                died.printed = await _kill_process(died.host, redact)
                raise
            except BaseException:
                await _kill_process(taken, redact)
                raise
            finally:
                self._busy -= {taken}
            if isinstance(answer, Refused):
                failure = with_printed(answer.failure, await host.printed_text(redact))
                answer = msgspec.structs.replace(answer, failure=failure)
            if self._closed:
                await host.kill()
            else:
                self._idle.append(host)
        return answer

    def _seconds(self, context: ToolCallContext) -> float:
        return self._timeout_s if context.timeout_s is None else context.timeout_s

    async def _take(self) -> HostProcess:
        host: HostProcess | None = None
        while self._idle and host is None:
            host = self._idle.pop()
            if not host.alive:
                await host.kill()
                host = None
        if host is None and not self._closed:
            limit = self._environment.output_bytes_max
            host = await HostProcess.start(self._setup, self._environment.of_processes, limit, _log)
        if host is None or self._closed:  # after the closing, no task would end a new process
            if host is not None:
                await host.kill()
            raise tool_failed("tool.unavailable", "the Python tools of this node are closed")
        self._busy.add(host)
        return host

    async def close(self) -> None:
        """End all processes at once: those of calls in progress are killed."""
        self._closed = True
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as tasks:
                for host in self._busy:
                    tasks.start_soon(host.kill)
                for host in self._idle:
                    tasks.start_soon(host.close)
            self._idle.clear()
