"""The transport of Python tools: plain functions, run in separate processes so that a tool cannot harm the worker.

A process runs one call at a time; simultaneous calls get separate processes (up to `HOSTS_MAX`), and idle processes are
reused. A call that hangs is ended with its process, and so is a cancelled one. Functions are imported from the working
directory and the worker's ``sys.path``, in such a process also when they are listed: an import that hangs or exits does
not stall the worker. Tools' prints go to the structured log, and their end into the failure of a call.

An output is any value with a JSON form: JSON values, dataclasses, pydantic models, dates, UUIDs, sets. NaN and infinity
have no JSON form.
"""

import signal
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import msgspec
import structlog
from anyio import to_thread
from anyio.streams.buffered import BufferedByteReceiveStream

from callboard.actors.lending.variables import SHIPPED
from callboard.actors.programs.program import Program
from callboard.actors.tools import python_frames as frames
from callboard.actors.tools.failures import describe_error, last_words, tool_failed, with_printed
from callboard.actors.tools.lent import fill
from callboard.actors.tools.stderr import Printed, Redact, open_stderr
from callboard.actors.tools.tool import ToolCallContext, ToolEnvironment, ToolFailed
from callboard.bus import tracecontext
from callboard.bus.effects import PythonTools, ToolSpec
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_types import JSON

EXIT_GRACE_S = 2.0
"""How long a process may take to end before it is killed; longer than the host's own grace period."""

HOST = (sys.executable, "-P", "-m", "callboard.actors.tools.python_host")
"""The command that starts a host process."""

FRAME_BYTES_SLACK = 1024 * 1024
"""The size allowed to a frame in addition to a tool's output, for specs, messages and tracebacks."""

_BROKEN = (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError, anyio.ClosedResourceError)


class HostDied(Exception):
    """The process ended in the middle of a request; the text says how, ``printed`` is its output."""

    def __init__(self, how: str, host: "HostProcess") -> None:
        super().__init__(how)
        self.host = host
        self.printed = ""


class HostProcess:
    """A running host. It takes one request at a time; after a timeout or a cancellation, only `kill` may be called."""

    def __init__(self, program: Program, frame_bytes_max: int, printed: Printed) -> None:
        self._program = program
        self._stdin = program.stdin
        self._frames = BufferedByteReceiveStream(program.stdout)
        self._frame_bytes_max = frame_bytes_max
        self._printed = printed
        self._asked_at = 0

    @classmethod
    async def start(cls, setup: frames.Setup, env: Mapping[str, str], output_bytes_max: int, log: Any) -> "HostProcess":
        """Start a host; its stderr and stdout go to the log.

        :raises OSError: if the process cannot be started
        """
        host: HostProcess | None = None
        writer, printed = open_stderr(log)
        with writer as stderr, anyio.CancelScope(shield=True):  # a cancelled spawn would leak the process
            program = await Program.start(HOST, env=env, stderr=stderr)
            host = cls(program, output_bytes_max + FRAME_BYTES_SLACK, printed)
        assert host is not None, "a shielded spawn either raises or returns"
        try:
            await host._stdin.send(frames.encode_frame(setup))
        except _BROKEN as error:
            raise HostDied(await host.reap(), host) from error
        except BaseException:
            await host.kill()
            raise
        return host

    @property
    def alive(self) -> bool:
        return self._program.returncode is None

    async def ask(
        self, request: frames.Describe | frames.CallFunction, heard: Callable[[frames.Reported | frames.Logged], None]
    ) -> frames.Answer:
        """Send a request and wait for its answer; earlier events are passed to ``heard``.

        :raises HostDied: if the process ends, or sends something that is not a frame, before it has answered
        """
        if isinstance(request, frames.CallFunction):
            self._asked_at = self._printed.position
        try:
            await self._stdin.send(frames.encode_frame(request))
            while True:
                match await self._receive():
                    case frames.Reported() | frames.Logged() as event:
                        heard(event)
                    case answer:
                        return answer
        except _BROKEN as error:
            raise HostDied(await self.reap(), self) from error

    async def printed_text(self, redact: Redact) -> str:
        """Return the end of the text that the process has printed since its last request, without secrets."""
        said = ""
        with anyio.CancelScope(shield=True):
            said = await to_thread.run_sync(self._printed.since, self._asked_at, redact)
        return said  # noqa: RET504 - the scope may swallow what is in it, as far as types go

    async def _receive(self) -> frames.Reply:
        size = frames.frame_length(await self._frames.receive_exactly(frames.LENGTH_BYTES))
        if size > self._frame_bytes_max:
            await self.kill()
            raise HostDied(f"sent a frame of {size} bytes, more than {self._frame_bytes_max}", self)
        return frames.reply_decoder.decode(await self._frames.receive_exactly(size))

    async def reap(self) -> str:
        """Wait for a process that is ending, killing it if it lingers, and return how it ended."""
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(EXIT_GRACE_S):
                await self._program.wait()
            await self.kill()
        return _ending(self._program.returncode)

    async def kill(self) -> None:
        """Kill the process and its children, and release its pipes."""
        await self._program.end()

    async def close(self) -> None:
        """Let an idle process end by closing its pipe; kill it if it does not."""
        with anyio.CancelScope(shield=True):
            with suppress(*_BROKEN):
                await self._stdin.aclose()
            await self.reap()


def _ending(returncode: int | None) -> str:
    if returncode is None:
        return "could not be reaped"
    if returncode >= 0:
        return f"ended with exit status {returncode}"
    with suppress(ValueError):
        return f"was killed by {signal.Signals(-returncode).name}"
    return f"was killed by signal {-returncode}"


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
    """No answer came in time; ``printed`` is the text printed until then."""

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
        self._setup = frames.Setup(source.functions, config, path)
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
            answer = await self._ask(frames.Describe(), ToolCallContext("", "", ""))
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
            case frames.Described(specs):
                self.specs = specs
            case frames.CallRefused(failure, traceback):
                _log.info("tool.unavailable", message=failure.message, traceback=traceback)
                raise ToolFailed(failure)
            case frames.Returned():
                raise tool_failed("tool.unavailable", f"the process of the Python tools {names} answered out of turn")

    async def call(self, tool: str, input: JSON, context: ToolCallContext) -> JSON:
        """Call a function with a JSON object.

        :raises ToolFailed: ``tool.failed`` if it raises, ``tool.timeout``, ``tool.crashed`` if its process dies,
            ``tool.bad_output``, ``tool.output_too_large``, ``tool.invalid_input``, ``tool.unknown``
        """
        if tool not in self._setup.functions:
            raise tool_failed("tool.unknown", f"no Python function serves a tool named {tool}")
        request = frames.CallFunction(
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
            case frames.Returned(output):
                return decode_json(output)
            case frames.CallRefused(failure, traceback):
                # The run gets the part of the traceback that its author can use; the log gets all of it.
                _log.info(failure.code, tool=tool, path=context.path, run=context.run, traceback=traceback)
                raise ToolFailed(failure)
            case frames.Described():
                raise tool_failed("tool.crashed", f"the process of tool {tool} answered out of turn")

    async def _ask(
        self, request: frames.Describe | frames.CallFunction, context: ToolCallContext
    ) -> frames.Described | frames.Returned | frames.CallRefused:
        """Have a process of the pool answer a request; afterwards it is back in the pool, or dead.

        Every failure includes the text that was printed.

        :raises _Overdue: without an answer within the time limit; waiting for a free process is not counted
        :raises HostDied: if the process ends before it has answered
        :raises OSError: if no process can be started
        """
        log = _log.bind(tool=getattr(request, "tool", None), run=context.run, path=context.path)

        def heard(event: frames.Reported | frames.Logged) -> None:
            if isinstance(event, frames.Reported):
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
            if isinstance(answer, frames.CallRefused):
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
