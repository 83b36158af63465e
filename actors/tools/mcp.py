"""The transport of MCP servers, over stdio or streamable HTTP: a session for one node execution, or for a whole run.

Environment variables go to a server by name (``env``: the server's name of it to the worker's), and values of
``headers`` may hold ``${VARIABLE}``, as far as `callboard.actors.lending.variables` permits. What a server writes to
stderr goes to the structured log, and its end into the failure of a call.
"""

import importlib
import math
import shlex
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import anyio
import structlog
from anyio import to_thread

from callboard.actors.lending.addresses import AddressRefused
from callboard.actors.tools.failures import described, last_words, shortened, tool_failed, with_printed
from callboard.actors.tools.lent import fill, pick
from callboard.actors.tools.mcp_contents import output_of, text_of
from callboard.actors.tools.stderr import Printed, Redact, open_stderr
from callboard.actors.tools.tool import Keep, ToolCallContext, ToolEnvironment, ToolFailed
from callboard.bus import tracecontext
from callboard.bus.effects import JSON, McpTools, ToolSpec
from callboard.bus.log import NoAnswer

if TYPE_CHECKING:
    from httpx2 import AsyncByteStream, Response
    from mcp import Client
    from mcp_types import CallToolResult, GetPromptResult, Tool

LIST_PAGES_MAX = 100
"""How many pages of tools a server may have: a paginator that never ends cannot hang a node."""

CONNECT_TIMEOUT_S = 30.0
"""How long connecting and writing to an HTTP server may take; reading is bounded by the source's own limit."""

MESSAGE_BYTES_SLACK = 1024 * 1024
"""What a message may have besides a tool's output."""

TOO_LARGE = "the answer has more than"
"""How the failure to read an answer over HTTP begins that is larger than it may be."""

ALLOWING = "the operator of the worker may allow its host, as allow_hosts of the tenant"
"""What is to be done about the address of a server that is private. Others are refused whatever is allowed."""

SESSION_HEADER = "mcp-session-id"
"""The header by which a request over HTTP belongs to a session."""

IDEMPOTENCY_META = "callboard/idempotency-key"
"""The member of a call's ``_meta`` that carries the idempotency key."""

_log: Any = structlog.get_logger("callboard.tools.mcp")


@asynccontextmanager
async def open_mcp(source: McpTools, environment: ToolEnvironment) -> AsyncGenerator["McpTransport"]:
    """Start or reach an MCP server and list its tools.

    To be entered and left in one task, which should do nothing else: when an HTTP transport breaks, the SDK cancels
    the block, and the error comes out of it. Calls come from other tasks and fail as `McpTransport.call` says.

    :raises ToolFailed: ``tool.unavailable`` if the server cannot be started or reached, does not speak MCP, or has not
        listed its tools within ``timeout_s``
    """
    heard = _Heard(environment.redact, environment.output_bytes_max + MESSAGE_BYTES_SLACK)
    opened = False
    # One scope around all, its deadline lifted once open: a scope may not end inside those that the SDK enters.
    timeout_s = environment.seconds(source)
    with anyio.CancelScope(deadline=anyio.current_time() + timeout_s) as opening:
        try:
            await to_thread.run_sync(importlib.import_module, "mcp")  # most of a second, not on the event loop
            async with AsyncExitStack() as stack:
                client = await _connect(stack, source, environment, heard)
                transport = McpTransport(source, client, await _list(client), heard, timeout_s, environment.keep)
                await heard.since(0)  # what it printed at its start belongs to no call
                opening.deadline = math.inf
                opened = True
                try:
                    yield transport
                finally:
                    transport.open = False
        except ToolFailed:
            raise
        except Exception as error:
            if opened:
                raise
            raise await _unavailable(source, f"cannot be opened: {described(error)}", heard) from error
    if not opened:
        raise await _unavailable(source, f"was not ready within {timeout_s:g} s", heard)


async def read_prompt(source: McpTools, environment: ToolEnvironment, name: str) -> str:
    """Start or reach an MCP server, have it fill in a prompt without arguments, and let it go again.

    :raises ToolFailed: ``tool.unavailable`` as in `open_mcp`, ``tool.failed`` if the server has no such prompt,
        ``tool.bad_output`` if that holds no text
    """
    from mcp import MCPError

    heard = _Heard(environment.redact, environment.output_bytes_max + MESSAGE_BYTES_SLACK)
    found: GetPromptResult | None = None
    refused: MCPError | None = None
    who, timeout_s = f"MCP server {source.name}", environment.seconds(source)
    try:
        with anyio.fail_after(timeout_s):
            await to_thread.run_sync(importlib.import_module, "mcp")
            async with AsyncExitStack() as stack:
                client = await _connect(stack, source, environment, heard)
                try:
                    found = await client.get_prompt(name)
                except MCPError as error:
                    # Raised below: out of the client's task group it would come wrapped.
                    refused = error
    except TimeoutError:
        raise await _unavailable(source, f"gave no prompt within {timeout_s:g} s", heard) from None
    except ToolFailed:
        raise
    except Exception as error:
        raise await _unavailable(source, f"cannot be opened: {described(error)}", heard) from error
    if found is None:
        raise tool_failed("tool.failed", f"{who}: {refused.message if refused else 'no answer'}")
    texts = [message.content.text for message in found.messages if message.content.type == "text"]
    if not texts:
        raise tool_failed("tool.bad_output", f"the prompt {name} of {who} holds no text")
    return "\n\n".join(texts)


class _Heard:
    """What a server says besides its answers: what it prints, how many messages there were that are none, and over HTTP
    the newest status that is an error, and whether the session is over."""

    def __init__(self, redact: Redact, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.stderr: Printed | None = None
        self.garbage = 0
        self.status: int | None = None
        self.is_over = False
        self._redact = redact

    async def answered(self, response: "Response") -> None:
        """Take the head of an HTTP answer. A session that the server does not know any more is said by status 404 (MCP
        specification, *Transports*, "Session Management")."""
        if response.request.method == "POST":
            response.stream = _bounded(response.stream, self.bytes_max)
        if response.is_error:
            self.status = response.status_code
        if response.status_code == 404 and response.request.method == "POST":
            self.is_over = self.is_over or SESSION_HEADER in response.request.headers

    @property
    def position(self) -> int:
        """How much it has printed so far."""
        return self.stderr.position if self.stderr is not None else 0

    async def since(self, position: int) -> str:
        """What it has printed behind a position, without secrets."""
        if self.stderr is None:
            return ""
        said = ""
        with anyio.CancelScope(shield=True):
            said = await to_thread.run_sync(self.stderr.since, position, self._redact)
        return said  # noqa: RET504 - the scope may swallow what is in it, as far as types go


def _bounded(stream: Any, bytes_max: int) -> "AsyncByteStream":
    """Bound what is read of an HTTP answer: its end may never come, and it is held in memory until then."""
    import httpx2

    class Bounded(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for chunk in stream:
                size += len(chunk)
                if size > bytes_max:
                    raise httpx2.StreamError(f"{TOO_LARGE} {bytes_max} bytes")
                yield chunk

        async def aclose(self) -> None:
            await stream.aclose()

    return Bounded()


async def _connect(stack: AsyncExitStack, source: McpTools, environment: ToolEnvironment, heard: _Heard) -> "Client":
    import httpx2
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client
    from mcp_types import Implementation

    from callboard.actors.tools.mcp_http import check_url, client
    from callboard.actors.tools.mcp_stdio import started
    from callboard.actors.tools.mcp_tasks import Tasks

    async def heed(message: object) -> None:
        if isinstance(message, Exception):
            heard.garbage += 1

    who = f"MCP server {source.name}"
    env = pick(source.env, environment.env, who)
    if source.command:
        writer, heard.stderr = open_stderr(_log.bind(server=source.name))
        stderr = stack.enter_context(writer)
        transport = started(source.command, env, stderr, heard.bytes_max)
    elif source.url:
        headers = fill(source.headers, {**environment.env, **env}, who)
        timeout, reach = httpx2.Timeout(CONNECT_TIMEOUT_S, read=None), environment.lending.reach
        try:
            await check_url(source.url, reach)
        except AddressRefused as refused:
            raise tool_failed(
                "tool.refused", f"{who} is not asked: {refused}; {ALLOWING}", retryable=False
            ) from refused
        http = await stack.enter_async_context(client(source.url, headers, reach, timeout, heard.answered))
        transport = streamable_http_client(source.url, http_client=http)
    else:
        raise tool_failed("tool.unavailable", f"{who} has neither a command nor a url")
    ours = Implementation(name="callboard", title="Callboard", version=version("callboard"))
    return await stack.enter_async_context(
        Client(transport, message_handler=heed, client_info=ours, extensions=[Tasks()])
    )


async def _list(client: "Client") -> "list[Tool]":
    found: list[Tool] = []
    cursor: str | None = None
    for _ in range(LIST_PAGES_MAX):
        page = await client.list_tools(cursor=cursor)
        found += page.tools
        cursor = page.next_cursor
        if cursor is None:
            return found
    raise ValueError(f"its list of tools has more than {LIST_PAGES_MAX} pages")


async def _unavailable(source: McpTools, what: str, heard: _Heard) -> ToolFailed:
    where = shlex.join(source.command) if source.command else source.url
    printed = await heard.since(0)
    answered = f" (HTTP {heard.status})" if heard.status else ""
    remedy = last_words(printed) if source.command else f"{answered}; see that it runs at this address"
    if heard.garbage and source.command:
        remedy = (
            f"; it wrote {heard.garbage} lines to stdout that are no MCP messages (prints belong on stderr){remedy}"
        )
    message = f"MCP server {source.name} ({shortened(where, 200)}) {what}{remedy}"
    return tool_failed("tool.unavailable", message, {"server": source.name}, retryable=True, printed=printed)


class McpTransport:
    """An open session with an MCP server."""

    def __init__(
        self, source: McpTools, client: "Client", tools: "list[Tool]", heard: _Heard, timeout_s: float, keep: Keep
    ) -> None:
        self.specs = [ToolSpec(tool.name, tool.description or "", dict(tool.input_schema)) for tool in tools]
        self._tasks_only = {tool.name for tool in tools if tool.execution and tool.execution.task_support == "required"}
        self._keep = keep
        self.open = True
        self._heard = heard
        self._source = source
        self._client = client
        self._timeout_s = timeout_s

    async def call(self, tool: str, input: JSON, context: ToolCallContext) -> JSON:
        """Call a tool of the server. What the server prints meanwhile is told with a failure.

        :raises ToolFailed: ``tool.failed`` if the server says so, ``tool.timeout``, ``tool.crashed`` if the server is
            gone, ``tool.bad_output`` if the result does not fit the tool's own output schema
        """
        position = self._heard.position
        try:
            return await self._called(tool, input, context)
        except ToolFailed as failed:
            raise ToolFailed(with_printed(failed.failure, await self._heard.since(position))) from failed.__cause__

    async def _called(self, tool: str, input: JSON, context: ToolCallContext) -> JSON:
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED

        who = f"MCP server {self._source.name}"
        if not self.open or self._heard.is_over:
            raise self._gone(tool, "the session had ended")
        if tool in self._tasks_only:
            why = "wants to be called as a task of protocol 2025-11-25, which Callboard does not speak"
            raise tool_failed("tool.unavailable", f"tool {tool} of {who} {why}", retryable=False)
        timeout_s = self._timeout_s if context.timeout_s is None else context.timeout_s
        try:
            with anyio.fail_after(timeout_s):
                result = await self._result(tool, input, context)
        except TimeoutError:
            message = f"tool {tool} of {who} did not answer within {timeout_s:g} s"
            raise tool_failed("tool.timeout", message, {"timeout_s": timeout_s}) from None
        except MCPError as error:
            if error.code == CONNECTION_CLOSED or self._heard.is_over:
                raise self._gone(tool, described(error)) from error
            if TOO_LARGE in error.message:
                message = f"the output of tool {tool} of {who} is too large: {error.message}"
                raise tool_failed("tool.output_too_large", message) from error
            raise tool_failed("tool.failed", f"{who}: {error.message}", {"code": error.code}) from error
        except (anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            raise self._gone(tool, described(error)) from error
        except (RuntimeError, ValueError) as error:  # the SDK's checks of a result against schema and protocol
            if not self.open:
                raise self._gone(tool, described(error)) from error
            raise tool_failed("tool.bad_output", f"tool {tool} of {who}: {described(error)}") from error
        if result.is_error:
            raise tool_failed("tool.failed", text_of(result) or f"tool {tool} of {who} failed without a word")
        try:
            return await output_of(result, self._keep)
        except ValueError as error:
            raise tool_failed("tool.bad_output", f"tool {tool} of {who}: a part is no Base64: {error}") from error
        except NoAnswer as error:
            message = f"what tool {tool} of {who} has answered cannot be kept: {error}"
            raise tool_failed("tool.unavailable", message, retryable=True) from error

    async def _result(self, tool: str, input: JSON, context: ToolCallContext) -> "CallToolResult":
        if not isinstance(input, Mapping):
            raise tool_failed("tool.invalid_input", f"tool {tool} takes an object, not {type(input).__name__}")

        async def report(progress: float, total: float | None, message: str | None) -> None:
            share = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
            context.on_progress(shortened(message or share))

        meta: Any = {IDEMPOTENCY_META: context.idempotency_key, **tracecontext.headers()}
        return await self._client.call_tool(tool, dict(input), progress_callback=report, meta=meta)

    def _gone(self, tool: str, why: str) -> ToolFailed:
        once = "the next call of its tools" if self._source.scope == "run" else "the next execution of this node"
        remedy = f"{once} starts a new session"
        message = f"MCP server {self._source.name} was gone before tool {tool} had answered ({why}); {remedy}"
        return tool_failed("tool.crashed", message, {"server": self._source.name})
