"""Connecting to an MCP server: its transport, the handshake in the protocol that it speaks, and its list of tools."""

import shlex
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import anyio
import structlog
from anyio import to_thread

from callboard.actors.lending.addresses import AddressRefused
from callboard.actors.tools.failures import last_words, shorten, tool_failed
from callboard.actors.tools.lent import fill, pick
from callboard.actors.tools.mcp_http_answers import HttpState
from callboard.actors.tools.stderr import Printed, Redact, open_stderr
from callboard.actors.tools.tool import ToolEnvironment, ToolFailed
from callboard.bus.effects import McpTools
from callboard.lib.canonical_json import canonical
from callboard.lib.installed import version

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import ErrorData, Tool

    from callboard.actors.tools.mcp_exchange import Exchange

LIST_PAGES_MAX = 100
"""How many pages of tools a server may have: a paginator that never ends cannot hang a node."""

CONNECT_TIMEOUT_S = 30.0
"""How long connecting and writing to an HTTP server may take; reading is bounded by the source's own limit."""

MESSAGE_BYTES_SLACK = 1024 * 1024
"""How much larger a message may be than a tool's output."""

ALLOWING = "the operator of the worker may allow its host, as allow_hosts of the tenant"
"""The remedy for a server with a private address. Other refused addresses cannot be allowed."""

DISCOVER_S = 1.0
"""How long a server may take to answer ``server/discover`` before it is asked to initialize as well."""

DISCOVER_SHARE = 0.25
"""The share of a server's own time limit that this may take at most."""

SILENT_S = 600.0
"""How long a server that did not answer ``server/discover`` is not asked again."""

SILENT_MAX = 1000
"""How many such servers are remembered."""

_log: Any = structlog.get_logger("callboard.tools.mcp")


class ServerOutput:
    """Observations about a server other than its answers: printed text, the number of lines that are not messages, the
    state of HTTP, faults in its list of tools."""

    def __init__(self, redact: Redact, output_bytes_max: int) -> None:
        self.bytes_max = output_bytes_max + MESSAGE_BYTES_SLACK
        self.stderr: Printed | None = None
        self.garbage = 0
        self.http = HttpState(self.bytes_max)
        self.warnings: list[tuple[str, str, str]] = []
        self.exchange: Exchange | None = None
        self.notices = 0
        """How often the server has said that its tools have changed."""
        self._noticed = anyio.Event()
        self._redact = redact

    @property
    def is_over(self) -> bool:
        """Return whether the session has ended: its pipes are closed, or the server no longer knows it."""
        return self.http.is_over or (self.exchange is not None and self.exchange.is_over)

    def notice(self) -> None:
        """Record that the server's tools have changed."""
        self.notices += 1
        self._noticed.set()
        self._noticed = anyio.Event()

    async def wait_for_notice(self, notices: int, seconds: float) -> None:
        """Wait until there are more than a number of notices, for a time at most."""
        with anyio.move_on_after(seconds):
            while self.notices <= notices and not self.is_over:
                await self._noticed.wait()

    @property
    def position(self) -> int:
        """The number of bytes that the server has printed so far."""
        return self.stderr.position if self.stderr is not None else 0

    async def since(self, position: int) -> str:
        """Return the text that it has printed after a position, without secrets."""
        if self.stderr is None:
            return ""
        said = ""
        with anyio.CancelScope(shield=True):
            said = await to_thread.run_sync(self.stderr.since, position, self._redact)
        return said  # noqa: RET504 - the scope may swallow what is in it, as far as types go


class _Silent:
    """Servers that did not answer ``server/discover``, and when: they are initialized at once the next time."""

    def __init__(self) -> None:
        self._since: dict[bytes, float] = {}

    def has(self, source: McpTools) -> bool:
        since = self._since.get(_address(source))
        return since is not None and time.monotonic() - since < SILENT_S

    def add(self, source: McpTools) -> None:
        self._since.pop(_address(source), None)
        self._since[_address(source)] = time.monotonic()
        if len(self._since) > SILENT_MAX:
            del self._since[next(iter(self._since))]

    def forget(self, source: McpTools) -> None:
        self._since.pop(_address(source), None)


_silent = _Silent()


def _address(source: McpTools) -> bytes:
    return canonical([source.command, source.url])


async def connect(
    stack: AsyncExitStack, source: McpTools, environment: ToolEnvironment, heard: ServerOutput
) -> "Client":
    """Reach a server and agree with it on a protocol, until the stack is closed.

    :raises ToolFailed: if the source names no server, or one that it may not use
    """
    from mcp import Client
    from mcp.types import Implementation, ToolListChangedNotification

    from callboard.actors.tools.mcp_exchange import Exchange, exchange_through
    from callboard.actors.tools.mcp_tasks import TaskExtension

    async def heed(message: object) -> None:
        if isinstance(message, Exception):
            heard.garbage += 1
        elif isinstance(message, ToolListChangedNotification):
            heard.notice()

    discover_s = min(DISCOVER_S, environment.seconds(source) * DISCOVER_SHARE)
    exchange = heard.exchange = Exchange(
        discover_s, lambda *warning: heard.warnings.append(warning), heard.http.refused
    )
    client = Client(
        exchange_through(await _transport(stack, source, environment, heard), exchange),
        mode="legacy" if _silent.has(source) else "auto",
        message_handler=heed,
        client_info=Implementation(name="callboard", title="Callboard", version=version("callboard")),
        extensions=[TaskExtension()],
        elicitation_callback=_asked_in_a_call,
    )
    try:
        await stack.enter_async_context(client)
    except BaseException:
        _silent.forget(source)  # its protocol may have changed
        raise
    exchange.version = client.protocol_version
    if exchange.has_ignored_discover:
        _silent.add(source)
    return client


async def _asked_in_a_call(context: Any, params: Any) -> "ErrorData":
    """Refuse a server's request for input in the middle of a call. Having this handler declares support for elicitation
    in results."""
    from mcp.types import INVALID_REQUEST, ErrorData

    return ErrorData(code=INVALID_REQUEST, message="input can be asked for by results of protocol 2026-07-28 only")


async def _transport(stack: AsyncExitStack, source: McpTools, environment: ToolEnvironment, heard: ServerOutput) -> Any:
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    from callboard.actors.tools.mcp_http_answers import check_url, client
    from callboard.actors.tools.mcp_stdio import start_server

    who = f"MCP server {source.name}"
    env = pick(source.env, environment.env, who)
    if source.command:
        writer, heard.stderr = open_stderr(_log.bind(server=source.name))
        return start_server(source.command, env, stack.enter_context(writer), heard.bytes_max)
    if not source.url:
        raise tool_failed("tool.unavailable", f"{who} has neither a command nor a url")
    # Not compressed: a body is repaired before it is parsed.
    headers = {"accept-encoding": "identity", **fill(source.headers, {**environment.env, **env}, who)}
    timeout, reach = httpx2.Timeout(CONNECT_TIMEOUT_S, read=None), environment.lending.reach
    try:
        await check_url(source.url, reach)
    except AddressRefused as refused:
        raise tool_failed("tool.refused", f"{who} is not asked: {refused}; {ALLOWING}", retryable=False) from refused
    http = await stack.enter_async_context(client(source.url, headers, reach, timeout, heard.http.take_answer))
    return streamable_http_client(source.url, http_client=http)


def tells_changes(client: "Client") -> bool:
    """Return whether a server says that it notifies of changes of its tools."""
    tools = client.server_capabilities.tools
    return tools is not None and bool(tools.list_changed)


async def listen(client: "Client") -> None:
    """Ask a server for notices that its tools have changed: protocol 2026-07-28 sends them only on request.

    The client's handler of messages takes them.
    """
    from mcp import MCPError
    from mcp.client.subscriptions import SubscriptionLost

    from callboard.actors.tools.mcp_exchange import CLOSED

    try:
        async with client.listen(tools_list_changed=True) as changes:
            async for _ in changes:
                pass
    except (MCPError, SubscriptionLost, TimeoutError, RuntimeError, *CLOSED) as error:
        # The session continues without notices.
        _log.info("tool.server.silent", error=str(error))


async def list_tools(client: "Client", *, again: bool = False) -> "list[Tool]":
    """Return the tools of a server; ``again`` if they may have changed since they were listed.

    :raises ValueError: if the list has too many pages
    """
    found: list[Tool] = []
    cursor: str | None = None
    for _ in range(LIST_PAGES_MAX):
        page = await client.list_tools(cursor=cursor, cache_mode="refresh" if again else "use")
        found += page.tools
        cursor = page.next_cursor
        if cursor is None:
            return found
    raise ValueError(f"its list of tools has more than {LIST_PAGES_MAX} pages")


async def unavailable(source: McpTools, what: str, heard: ServerOutput) -> ToolFailed:
    where = shlex.join(source.command) if source.command else source.url
    printed = await heard.since(0)
    answered = f" (HTTP {heard.http.status})" if heard.http.status else ""
    remedy = last_words(printed) if source.command else f"{answered}; see that it runs at this address"
    if heard.garbage and source.command:
        remedy = (
            f"; it wrote {heard.garbage} lines to stdout that are not MCP messages (prints belong on stderr){remedy}"
        )
    message = f"MCP server {source.name} ({shorten(where, 200)}) {what}{remedy}"
    return tool_failed("tool.unavailable", message, {"server": source.name}, retryable=True, printed=printed)
