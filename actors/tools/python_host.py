"""The program that runs Python tools: a child process of a worker, one call at a time.

Started as ``python -m callboard.actors.tools.python_host``. It exchanges frames (`python_frames`) over the pipes that
it finds as stdin and stdout. It moves them away before any tool runs: for a tool, stdin is empty and stdout is the same
as stderr, which the worker reads. So prints, fork and exec cannot reach the protocol. The program ends with its worker:
when the pipe closes, it has `EXIT_GRACE_S` to finish, whatever a tool is doing.
"""

import faulthandler
import inspect
import io
import logging
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from contextvars import copy_context
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec
from msgspec import Struct
from pydantic import ValidationError

from callboard.actors.tools import python_frames as frames
from callboard.actors.tools.failures import describe_error, exception_details, shorten
from callboard.actors.tools.python_signature import NotATool, ToolFunction, load_function
from callboard.bus.effects import Failure
from callboard.bus.tracecontext import TRACEPARENT, read, within
from callboard.bus.work import WORK, WorkContext, follow_work
from callboard.lib.finite_json import NotFinite, encode_finite
from callboard.lib.set_order import write_sets_in_order
from callboard.lib.text import normalise_json

if TYPE_CHECKING:
    import asyncio

EXIT_GRACE_S = 1.0
"""How long the process may live after its worker is gone or has closed the pipe."""


class ToolContext(Struct, frozen=True):
    """The value of a parameter named ``context``.

    ``config`` is the source's configuration. ``idempotency_key`` is the same whenever this call is executed again.
    ``traceparent`` is the call's span in the form of W3C Trace Context, also the same; empty if it is not passed on.
    """

    config: Mapping[str, str]
    log: logging.Logger
    run: str
    path: str
    idempotency_key: str
    channel: "Channel"
    traceparent: str = ""

    def progress(self, message: str) -> None:
        """Report a line of progress to the people who watch the run."""
        self.channel.send(frames.Reported(shorten(str(message))))


class Channel:
    """The two pipes to the worker, kept away from the tools."""

    def __init__(self, reader: BinaryIO, writer: BinaryIO) -> None:
        self._reader = reader
        self._writer = writer
        self._lock = threading.Lock()
        self._forked = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._leave)

    @classmethod
    def take_over(cls) -> "Channel":
        """Move the protocol away from the standard streams, to descriptors that child programs do not inherit."""
        channel = cls(os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb"))
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(line_buffering=True, errors="backslashreplace")
        return channel

    def send(self, reply: frames.Reply) -> None:
        """Write one frame; from any thread."""
        with self._lock:
            if self._forked:
                os._exit(1)  # a tool's fork that returned into our loop must not write to the protocol
            self._writer.write(frames.encode_frame(reply))
            self._writer.flush()

    def receive(self) -> frames.Request | None:
        """Read one frame; return None when the worker has closed the pipe or is gone."""
        prefix = self._reader.read(frames.LENGTH_BYTES)
        if len(prefix) < frames.LENGTH_BYTES:
            return None
        size = frames.frame_length(prefix)
        body = self._reader.read(size)
        return frames.request_decoder.decode(body) if len(body) == size else None

    def _leave(self) -> None:
        self._lock = threading.Lock()  # another thread may have held it at the fork
        self._forked = True
        for stream in (self._reader, self._writer):
            with suppress(OSError):
                os.close(stream.fileno())


class _FrameHandler(logging.Handler):
    """Sends the records of the tools' logger to the worker."""

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._channel = channel

    def emit(self, record: logging.LogRecord) -> None:
        self._channel.send(frames.Logged(record.levelno, shorten(self.format(record))))


class Host:
    """Serves the requests of one worker, in order."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._setup = frames.Setup({}, {}, [])
        self._functions: dict[str, ToolFunction] = {}
        self._log = logging.getLogger("callboard.tool")
        self._log.setLevel(logging.DEBUG)
        self._log.propagate = False
        self._log.addHandler(_FrameHandler(channel))

    @cached_property
    def _runner(self) -> "asyncio.Runner":
        """One event loop for all calls, because async functions may keep objects of it at module level."""
        # Imported late: most functions are not async, and asyncio takes a third of a host's time to start.
        import asyncio

        return asyncio.Runner()

    def answer(self, request: frames.Request) -> None:
        """Carry out one request; every request except `Setup` gets exactly one answer."""
        match request:
            case frames.Setup():
                self._setup = request
                sys.path[:] = request.path
            case frames.Describe():
                self._channel.send(self._describe())
            case frames.CallFunction():
                self._channel.send(self._call(request))

    def _describe(self) -> frames.Reply:
        specs = [self._load(name) for name in self._setup.functions]
        refused = [spec for spec in specs if isinstance(spec, frames.CallRefused)]
        if not refused:
            return frames.Described([spec.spec for spec in specs if isinstance(spec, ToolFunction)])
        messages = "; ".join(refusal.failure.message for refusal in refused)
        # Modules that do not load usually have one cause, which the traceback of the first one shows.
        told = Failure("tool.unavailable", messages, details=refused[0].failure.details)
        return frames.CallRefused(told, "\n".join(refusal.traceback for refusal in refused))

    def _load(self, name: str) -> "ToolFunction | frames.CallRefused":
        if name in self._functions:
            return self._functions[name]
        try:
            function = load_function(name, self._setup.functions[name])
        except BaseException as error:  # an import may raise anything, SystemExit included
            why = str(error) if isinstance(error, NotATool) else describe_error(error)
            message = f"tool {name} ({self._setup.functions[name]}) cannot be loaded: {why}"
            return _failure_of("tool.unavailable", message, error)
        self._functions[name] = function
        return function

    def _call(self, call: frames.CallFunction) -> frames.Reply:
        function = self._load(call.tool)
        if isinstance(function, frames.CallRefused):
            return function
        output: Any = None
        context = ToolContext(
            config=MappingProxyType(self._setup.config),
            log=self._log.getChild(call.tool),
            run=call.run,
            path=call.path,
            idempotency_key=call.idempotency_key,
            channel=self._channel,
            traceparent=call.traceparent,
        )
        work = WorkContext(call.run, call.path, call.idempotency_key, 1, context.progress, call.tool)
        token = WORK.set(work)
        try:
            try:
                positional, named = function.bind(call.input, context)
            except ValidationError as error:
                return _misfit(call.tool, error)
            with within(read({TRACEPARENT: call.traceparent})):
                output = function.function(*positional, **named)
                if inspect.isawaitable(output):
                    output = self._runner.run(_wait(output), context=copy_context())
        except BaseException as error:  # sys.exit in a tool is the tool's failure, not ours
            if not work.refused:
                message = f"tool {call.tool} raised {describe_error(error)}"
                return _failure_of("tool.failed", message, error, function.function)
        finally:
            WORK.reset(token)
        return frames.CallRefused(work.refused[0]) if work.refused else _encode_reply(call, output)


def _failure_of(code: str, message: str, error: BaseException, function: object = None) -> frames.CallRefused:
    """Return the failure for an error that a tool raised: with the tool's frames for the run, all for the log."""
    for stream in (sys.stdout, sys.stderr):
        # Printed text has to be in the pipe before the answer; a tool may have closed or replaced the stream.
        with suppress(Exception):
            stream.flush()
    own = frames.traceback_of(error)
    details = {**exception_details(error, function), **({"traceback": own} if own else {})}
    return frames.CallRefused(Failure(code, shorten(message), details=details), traceback.format_exc())


async def _wait(awaitable: Any) -> Any:
    return await awaitable


def _misfit(tool: str, error: ValidationError) -> frames.CallRefused:
    items = error.errors(include_url=False, include_context=False, include_input=False)
    problems = [{"at": "".join(f"/{step}" for step in item["loc"]), "message": item["msg"]} for item in items]
    listed = "; ".join(f"{problem['at'] or '/'}: {problem['message']}" for problem in problems)
    message = f"the input of tool {tool} does not fit its signature: {listed}"
    return frames.CallRefused(Failure("tool.invalid_input", shorten(message), details=problems))


def _encode_reply(call: frames.CallFunction, output: Any) -> frames.Reply:
    try:
        output = write_sets_in_order(output, _dump)
        try:
            text = encode_finite(output, _dump)
        except UnicodeEncodeError:
            text = encode_finite(normalise_json(msgspec.to_builtins(output, str_keys=True, enc_hook=_dump)))
    except NotFinite as error:
        message = f"tool {call.tool} returned {error}, which is not a number of JSON"
        return frames.CallRefused(Failure("tool.bad_output", shorten(message), details={"at": error.at}))
    except Exception as error:
        message = f"tool {call.tool} returned a {type(output).__name__} that is not JSON: {describe_error(error)}"
        return frames.CallRefused(Failure("tool.bad_output", shorten(message)), traceback.format_exc())
    if len(text) > call.output_bytes_max:
        message = f"the output of tool {call.tool} has {len(text)} bytes, the limit is {call.output_bytes_max}"
        return frames.CallRefused(Failure("tool.output_too_large", message))
    return frames.Returned(text)


def _dump(value: Any) -> Any:
    """Encode types that msgspec does not know: pydantic models (it knows dataclasses, dates, sets and UUIDs)."""
    dump = getattr(value, "model_dump", None)
    if dump is None or isinstance(value, type):
        raise TypeError(f"objects of type {type(value).__name__} cannot be written as JSON")
    return dump(mode="json", by_alias=True)


def _read_requests(channel: Channel, inbox: "queue.SimpleQueue[frames.Request | None]") -> None:
    """Fill the inbox from a separate thread, so that the end of the worker is noticed in the middle of a call."""
    while request := channel.receive():
        inbox.put(request)
    inbox.put(None)
    time.sleep(EXIT_GRACE_S)  # an idle process has ended by then; a tool's call or thread may delay it
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)  # including processes that the tool has started
    os._exit(1)


def main() -> None:
    """Serve until the worker closes the pipe."""
    channel = Channel.take_over()
    faulthandler.enable()
    follow_work()
    inbox: queue.SimpleQueue[frames.Request | None] = queue.SimpleQueue()
    threading.Thread(target=_read_requests, args=(channel, inbox), daemon=True).start()
    host = Host(channel)
    while request := inbox.get():
        host.answer(request)


if __name__ == "__main__":
    main()
