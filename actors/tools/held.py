"""A source of tools, held open by its own task, because a transport must be entered and left in the same task."""

from contextlib import AbstractAsyncContextManager
from typing import Any, assert_never

import anyio
import structlog
from msgspec import Struct, field

from callboard.actors.tools import lent
from callboard.actors.tools.failures import describe_error, shorten
from callboard.actors.tools.tool import Opens, SessionForgotten, ToolEnvironment, ToolFailed, ToolTransport
from callboard.bus.effects import Failure, McpTools, NatsTools, PythonTools, ScriptedTools, ToolSource

_log: Any = structlog.get_logger("callboard.tools")


class Held(Struct):
    """One source between its opening and its closing. ``settled`` is set when it is open or has failed to open."""

    source: ToolSource
    opens: Opens
    transport: ToolTransport | None = None
    failure: Failure | None = None
    was_forgotten: bool = False
    """Whether the server forgot the session while it was being opened."""
    settled: anyio.Event = field(default_factory=anyio.Event)
    is_over: bool = False

    async def hold(self, environment: ToolEnvironment, closing: anyio.Event) -> None:
        """Open the source and hold it open until ``closing`` is set or the source breaks."""
        try:
            async with self.opens(self.source, environment) as transport:
                self.transport = transport
                self.settled.set()
                await closing.wait()
        except ToolFailed as failed:
            self.failure = failed.failure
            self.was_forgotten = isinstance(failed, SessionForgotten)
        except Exception as error:
            # If it was open, the calls in flight have failed already, and no other task waits for this failure.
            server = server_of(self.source)
            _log.exception("tool.source.failed", server=server, opened=self.transport is not None)
            self.failure = Failure("tool.unavailable", shorten(f"{server}: {describe_error(error)}"))
        finally:
            self.is_over = True
            self.settled.set()


def open_source(source: ToolSource, environment: ToolEnvironment) -> AbstractAsyncContextManager[ToolTransport]:
    """Open a source with the transport of its kind, or with the environment's own function.

    :raises ToolFailed: ``tool.refused`` if it uses a variable that is not lent to it
    """
    lent.check(environment.lending, [source])
    if environment.opens is not None:
        return environment.opens(source, environment)
    match source:
        case PythonTools():
            from callboard.actors.tools.python import open_python

            return open_python(source, environment)
        case McpTools():
            from callboard.actors.tools.mcp import open_mcp

            return open_mcp(source, environment)
        case NatsTools():
            from callboard.actors.tools.nats import open_nats

            return open_nats(source, environment)
        case ScriptedTools():
            from callboard.actors.tools.scripted import open_scripted

            return open_scripted(source, environment)
        case _:
            assert_never(source)


def server_of(source: ToolSource) -> str:
    """Return the name of the server of a source's tools, for messages."""
    match source:
        case PythonTools():
            return "python"
        case McpTools(name=name):
            return name
        case NatsTools(subject=subject):
            return f"nats:{subject}"
        case ScriptedTools():
            return "script"
        case _:
            assert_never(source)
