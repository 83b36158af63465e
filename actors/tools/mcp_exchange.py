"""The exchange with an MCP server: a layer between a transport's two streams and the SDK.

It tracks the open requests, and therefore does what the SDK does not: an answer that cannot be read fails its request
at once, a malformed entry of a list of tools affects that tool, or its malformed member, and not the server, and a
server that does not answer ``server/discover`` is asked to initialize after a moment. Tools that are left out or
changed are reported by name, because otherwise the operator would not notice. The exchange also knows whether the
session has ended, independent of the numbers of errors.
"""

import math
from collections.abc import AsyncGenerator, Callable, Container, Sequence
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any, NamedTuple, Self

import anyio
from mcp.shared.inbound import find_invalid_x_mcp_header
from mcp.shared.message import SessionMessage
from mcp.types import (
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    ListToolsResult,
    RequestId,
    methods,
)
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from callboard.actors.tools.mcp_lines import UnreadableLine
from callboard.actors.tools.tool import ADAPTED, LEFT_OUT
from callboard.lib.text import normalise_json

NESTING_MAX = 100
"""How deep an entry of a list of tools may be nested."""

REPAIRS_MAX = 10
"""How many members of one entry are repaired before it is left out."""

Warn = Callable[[str, str, str], None]
"""Takes the code of a warning, the name of the tool if it has one, and the text."""


def usable_entries(result: dict[str, Any], version: str, warn: Warn) -> dict[str, Any]:
    """Return the result of ``tools/list`` with the entries that the protocol version allows, repaired if possible."""
    listed: Any = result.get("tools")
    if not isinstance(listed, list):
        return result
    envelope = normalise_json({key: value for key, value in result.items() if key != "tools"})
    tools: list[Any] = []
    for number, entry in enumerate(listed, 1):
        usable = _usable(entry, number, envelope, version, warn)
        if usable is not None:
            tools.append(usable)
    return {**envelope, "tools": tools}


def _usable(entry: Any, number: int, envelope: dict[str, Any], version: str, warn: Warn) -> dict[str, Any] | None:
    name = entry.get("name") if isinstance(entry, dict) else None
    who = f"tool {name}" if isinstance(name, str) else f"entry {number} of the list of tools"
    if not isinstance(entry, dict) or not isinstance(name, str) or not name:
        warn(LEFT_OUT, "", f"{who} is left out: it is listed without a name")
        return None
    if _is_deep(entry):
        warn(LEFT_OUT, name, f"{who} is left out: its entry is nested more than {NESTING_MAX} levels deep")
        return None
    tool: dict[str, Any] = normalise_json(entry)
    for _ in range(REPAIRS_MAX):
        fault = _fault(tool, envelope, version)
        if fault is None:
            return _with_valid_headers(tool, who, version, warn)
        where, why = fault
        if not _repair(tool, where):
            warn(LEFT_OUT, name, f"{who} is left out: its {where} is malformed: {why}")
            return None
        warn(ADAPTED, name, f"{who} is listed with a malformed {where}, which is ignored: {why}")
    warn(LEFT_OUT, name, f"{who} is left out: it has more than {REPAIRS_MAX} malformed members")
    return None


def _with_valid_headers(tool: dict[str, Any], who: str, version: str, warn: Warn) -> dict[str, Any] | None:
    """Leave out, with a warning, a tool with invalid header annotations (protocol 2026-07-28): the SDK only logs it."""
    why = find_invalid_x_mcp_header(tool.get("inputSchema")) if version in MODERN_PROTOCOL_VERSIONS else None
    if why is None:
        return tool
    warn(LEFT_OUT, tool["name"], f"{who} is left out: its inputSchema has an invalid x-mcp-header: {why}")
    return None


def _fault(tool: dict[str, Any], envelope: dict[str, Any], version: str) -> tuple[str, str] | None:
    """Return the first malformed member of an entry and the fault in it."""
    try:
        try:
            methods.validate_server_result("tools/list", version, {**envelope, "tools": [tool]})
        except (KeyError, ValueError) as error:
            if isinstance(error, ValidationError):
                raise
        ListToolsResult.model_validate({"tools": [tool]}, by_name=False)
    except ValidationError as error:
        for one in error.errors(include_url=False, include_context=False, include_input=False):
            if one["loc"][:1] == ("tools",):
                return _member(one["loc"], tool), one["msg"]
    return None


def _member(loc: Sequence[int | str], tool: dict[str, Any]) -> str:
    named = [str(step) for step in loc[2:]]
    return next((step for step in named if step in tool), named[0] if named else "entry")


def _repair(tool: dict[str, Any], member: str) -> bool:
    """Remove or replace a malformed member of an entry; return False if the member is required."""
    if member != "inputSchema":
        return member != "name" and tool.pop(member, None) is not None
    schema = tool.get(member)
    if schema is None:
        tool[member] = {"type": "object"}
        return True
    if not isinstance(schema, dict) or "type" in schema:
        return False
    tool[member] = {"type": "object", **schema}
    return True


def _is_deep(value: Any) -> bool:
    level: list[Any] = [value]
    for _ in range(NESTING_MAX):
        level = [
            inner
            for one in level
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


Heard = SessionMessage | Exception

DISCOVER = "server/discover"
INITIALIZE = "initialize"
CANCELLED = "notifications/cancelled"

LISTEN = "subscriptions/listen"
"""A request without an answer until the session ends: no answer that cannot be assigned is its answer."""

CLOSED = (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError)


class UnreadableAnswer(NamedTuple):
    """The ``data`` of the error by which an unreadable answer fails its request; no server can send one."""

    why: str


class InputRequired(NamedTuple):
    """The ``data`` of the error in place of a result that asks for input first (protocol 2026-07-28)."""

    requests: dict[str, Any]
    state: str | None


class SessionRefusal(NamedTuple):
    """The ``data`` of the error of a request that the server refused because it no longer knows the session."""


class Exchange:
    """The open requests of a session. ``discover_s`` bounds how long ``server/discover`` may stay unanswered.
    ``refused`` has the ids of the requests that the server refused because it no longer knows the session."""

    def __init__(self, discover_s: float, warn: Warn, refused: Container[str] = ()) -> None:
        self.is_over = False
        self._refused = refused
        self.has_ignored_discover = False
        self.version = ""
        self.waiting: anyio.CancelScope | None = None
        """Waits for the server's next message; cancelled when ``server/discover`` is overdue."""
        self.output_schemas: dict[str, dict[str, Any]] = {}
        """The output schemas of tools. The SDK does not get them: it drops a result that does not fit."""
        self._discover_s = discover_s
        self._warn = warn
        self._open: dict[str, tuple[RequestId, str]] = {}
        self._discover: tuple[RequestId, float] | None = None
        self._late_discover = ""

    def sent(self, message: Any) -> None:
        """Record a message to the server."""
        if isinstance(message, JSONRPCNotification) and message.method == CANCELLED:
            self._open.pop(str((message.params or {}).get("requestId")), None)
        if not isinstance(message, JSONRPCRequest):
            return
        if message.method == INITIALIZE and message.params:
            # In the older protocols the server asks in the middle of a call, and no call can wait for a person.
            message.params["capabilities"].pop("elicitation", None)
        if message.method != LISTEN:
            self._open[str(message.id)] = message.id, message.method
        if message.method == DISCOVER and not self.has_ignored_discover:
            self._discover = message.id, anyio.current_time() + self._discover_s
            if self.waiting is not None:
                self.waiting.deadline = self._discover[1]

    @property
    def deadline(self) -> float:
        """The time by which the server must have answered ``server/discover``, if that is open."""
        return self._discover[1] if self._discover else math.inf

    def overdue(self) -> SessionMessage:
        """Give up waiting for ``server/discover``: the SDK continues with ``initialize``."""
        assert self._discover is not None
        asked, _ = self._discover
        self._discover = None
        self.has_ignored_discover = True
        self._late_discover = str(asked)
        self._open.pop(str(asked), None)
        return _error(asked, ErrorData(code=METHOD_NOT_FOUND, message=f"no answer to {DISCOVER} in time"))

    def heard(self, item: Heard) -> Heard:
        """Return the item that the SDK gets in place of one from the server."""
        if isinstance(item, UnreadableLine):
            return self._fail_request(item)
        if isinstance(item, Exception):
            return item
        message = item.message
        if isinstance(message, JSONRPCError) and message.id is None and len(self._open) == 1:
            # The server could not read the id of the request; only one is open.
            ((asked, _),) = self._open.values()
            message = JSONRPCError(jsonrpc="2.0", id=asked, error=message.error)
            item = SessionMessage(message)
        if not isinstance(message, JSONRPCResponse | JSONRPCError):
            return item
        if str(message.id) == self._late_discover and isinstance(message, JSONRPCResponse):
            return self._modern_after_all(message) or item
        _, method = self._open.pop(str(message.id), (None, ""))
        if self._discover and str(self._discover[0]) == str(message.id):
            self._discover = None
        if isinstance(message, JSONRPCError):
            if str(message.id) not in self._refused or message.id is None:
                return item
            error = ErrorData(code=message.error.code, message=message.error.message, data=SessionRefusal())
            return _error(message.id, error)
        if method == "tools/list":
            message.result = usable_entries(message.result, self.version, self._warn)
            self._keep_output_schemas(message.result)
        elif method == "tools/call" and (asked := _find_required_input(message.result)):
            return _error(message.id, ErrorData(code=INTERNAL_ERROR, message="the tool asks for input", data=asked))
        return item

    def _keep_output_schemas(self, listing: dict[str, Any]) -> None:
        listed: Any = listing.get("tools")
        for tool in listed if isinstance(listed, list) else []:
            self.output_schemas.pop(tool["name"], None)
            if isinstance(schema := tool.pop("outputSchema", None), dict):
                self.output_schemas[tool["name"]] = schema

    def _fail_request(self, line: UnreadableLine) -> Heard:
        """Fail the request that an unreadable line answers, if that is known."""
        answered = line.ids & self._open.keys()
        if not line.is_answer:
            return line
        if not answered and len(self._open) == 1 and not line.ids:
            answered = self._open.keys()
        if len(answered) != 1:
            return line
        (key,) = answered
        asked, method = self._open.pop(key)
        if self._discover and self._discover[0] == asked:
            self._discover = None
        message = f"its answer to {method} cannot be read: {line}"
        return _error(asked, ErrorData(code=PARSE_ERROR, message=message, data=UnreadableAnswer(str(line))))

    def _modern_after_all(self, message: JSONRPCResponse) -> SessionMessage | None:
        """Handle a late answer to ``server/discover``: have the SDK ask again, in place of the older handshake."""
        self._late_discover = ""
        offered = message.result.get("supportedVersions")
        mutual = [version for version in MODERN_PROTOCOL_VERSIONS if isinstance(offered, list) and version in offered]
        asked = next((asked for asked, method in self._open.values() if method == INITIALIZE), None)
        if not mutual or asked is None:
            return None
        self._open.pop(str(asked))
        self.has_ignored_discover = False
        self._discover_s = math.inf
        data = {"supported": mutual, "requested": ""}
        message_ = "the server has answered server/discover"
        return _error(asked, ErrorData(code=UNSUPPORTED_PROTOCOL_VERSION, message=message_, data=data))


def _find_required_input(result: dict[str, Any]) -> InputRequired | None:
    """Return the input that a result asks for; None if it is a final result, or only asks to be called again."""
    requests, state = result.get("inputRequests"), result.get("requestState")
    if result.get("resultType") != "input_required" or not isinstance(requests, dict) or not requests:
        return None
    return InputRequired(normalise_json(requests), state if isinstance(state, str) else None)


def _error(asked: RequestId, error: ErrorData) -> SessionMessage:
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=asked, error=error))


class Incoming:
    """The stream that the SDK reads from."""

    def __init__(self, stream: Any, exchange: Exchange) -> None:
        self._stream = stream
        self._exchange = exchange

    @property
    def last_context(self) -> Any:
        """The context variables of the task that sent the last item, if the transport knows them."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Heard:
        exchange = self._exchange
        while True:
            item: Heard | None = None
            try:
                with anyio.CancelScope(deadline=exchange.deadline) as exchange.waiting:
                    item = await self._stream.receive()
            except CLOSED:
                exchange.is_over = True
                raise
            finally:
                exchange.waiting = None
            if item is not None:
                return exchange.heard(item)
            if anyio.current_time() >= exchange.deadline:
                return exchange.overdue()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Heard:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.aclose()


class Outgoing:
    """The stream that the SDK writes to."""

    def __init__(self, stream: Any, exchange: Exchange) -> None:
        self._stream = stream
        self._exchange = exchange

    async def send(self, item: SessionMessage, /) -> None:
        self._exchange.sent(item.message)
        try:
            await self._stream.send(item)
        except CLOSED:
            self._exchange.is_over = True
            raise

    async def aclose(self) -> None:
        with suppress(*CLOSED):
            await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.aclose()


@asynccontextmanager
async def exchange_through(transport: Any, exchange: Exchange) -> AsyncGenerator[tuple[Incoming, Outgoing]]:
    """Put an exchange between a transport and the SDK, for the length of the block."""
    async with transport as (incoming, outgoing):
        yield Incoming(incoming, exchange), Outgoing(outgoing, exchange)
