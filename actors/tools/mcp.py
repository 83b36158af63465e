"""The transport of MCP servers, over stdio or streamable HTTP: a session for one node execution, or for a whole run.

Environment variables go to a server by name (``env``: the server's name of it to the worker's), and values of
``headers`` may hold ``${VARIABLE}``, as far as `callboard.actors.lending.variables` permits. The stderr of a server is
written to the structured log, and the end of it to the failure of a call.
"""

import math
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import structlog

from callboard.actors.tools.failures import (
    bounded_details,
    describe_error,
    quote,
    shorten,
    tool_failed,
    with_printed,
)
from callboard.actors.tools.mcp_connecting import ServerOutput, connect, list_tools, listen, tells_changes, unavailable
from callboard.actors.tools.mcp_http_answers import TOO_LARGE, is_lost, unread
from callboard.actors.tools.mcp_results import output_of, text_of, without_binary
from callboard.actors.tools.tool import (
    INPUT_REQUIRED,
    ROUNDS_MAX,
    Keep,
    SessionForgotten,
    ToolCallContext,
    ToolEnvironment,
    ToolFailed,
)
from callboard.bus import tracecontext
from callboard.bus.effects import McpTools, ToolSpec
from callboard.bus.log.port import NoAnswer
from callboard.lib.background_imports import import_beside
from callboard.lib.json_schema.check import Inapplicable, violations
from callboard.lib.json_schema.violation_messages import violation_message
from callboard.lib.json_types import JSON
from callboard.lib.text import normalise_json, normalise_text

if TYPE_CHECKING:
    from mcp import Client, MCPError
    from mcp.types import CallToolResult, GetPromptResult, Tool

    from callboard.actors.tools.mcp_exchange import InputRequired


NOTICE_S = 0.05
"""How long after an answer a server may take to notify that the call has changed its tools."""

MISFITS_MAX = 5
"""How many reasons are given why a result does not fit the output schema of its tool."""

LOST = (anyio.ClosedResourceError, anyio.BrokenResourceError)
"""The errors of a session whose streams are closed."""

_log: Any = structlog.get_logger("callboard.tools.mcp")

IDEMPOTENCY_META = "callboard/idempotency-key"
"""The member of a call's ``_meta`` that carries the idempotency key."""


@asynccontextmanager
async def open_mcp(source: McpTools, environment: ToolEnvironment) -> AsyncGenerator["McpTransport"]:
    """Start or reach an MCP server and list its tools.

    Enter and leave this in one task, which should do nothing else: when an HTTP transport breaks, the SDK cancels
    the block, and the error comes out of it. Calls come from other tasks and fail as `McpTransport.call` describes.

    :raises SessionForgotten: if the server has already forgotten the session before its tools are listed
    :raises ToolFailed: ``tool.unavailable`` if the server cannot be started or reached, does not speak MCP, or has not
        listed its tools within ``timeout_s``
    """
    heard = ServerOutput(environment.redact, environment.output_bytes_max)
    opened = False
    # One scope around everything, without a deadline once open: a scope must not end inside those that the SDK enters.
    timeout_s = environment.seconds(source)
    with anyio.CancelScope(deadline=anyio.current_time() + timeout_s) as opening:
        try:
            await import_beside("mcp")  # takes about a second
            from mcp.types.version import MODERN_PROTOCOL_VERSIONS

            async with AsyncExitStack() as stack:
                client = await connect(stack, source, environment, heard)
                if tells_changes(client) and client.protocol_version in MODERN_PROTOCOL_VERSIONS:
                    background = await stack.enter_async_context(anyio.create_task_group())
                    stack.callback(background.cancel_scope.cancel)
                    background.start_soon(listen, client)
                tools = await list_tools(client)
                transport = McpTransport(source, client, tools, heard, timeout_s, environment.keep)
                await heard.since(0)  # output during the start belongs to no call
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
            failed = await unavailable(source, f"cannot be opened: {describe_error(error)}", heard)
            raise (SessionForgotten(failed.failure) if heard.http.is_over else failed) from error
    if not opened:
        raise await unavailable(source, f"was not ready within {timeout_s:g} s", heard)


async def read_prompt(source: McpTools, environment: ToolEnvironment, name: str) -> str:
    """Start or reach an MCP server, have it fill in a prompt without arguments, and close the connection.

    :raises ToolFailed: ``tool.unavailable`` as in `open_mcp`, ``tool.failed`` if the server has no such prompt,
        ``tool.bad_output`` if that holds no text
    """
    try:
        return await _read_prompt(source, environment, name)
    except SessionForgotten:
        return await _read_prompt(source, environment, name)


async def _read_prompt(source: McpTools, environment: ToolEnvironment, name: str) -> str:
    from mcp import MCPError

    heard = ServerOutput(environment.redact, environment.output_bytes_max)
    found: GetPromptResult | None = None
    refused: MCPError | None = None
    who, timeout_s = f"MCP server {source.name}", environment.seconds(source)
    try:
        with anyio.fail_after(timeout_s):
            await import_beside("mcp")
            async with AsyncExitStack() as stack:
                client = await connect(stack, source, environment, heard)
                try:
                    found = await client.get_prompt(name)
                except MCPError as error:
                    # Raised below: here, the client's task group would wrap it.
                    refused = error
    except TimeoutError:
        raise await unavailable(source, f"gave no prompt within {timeout_s:g} s", heard) from None
    except ToolFailed:
        raise
    except Exception as error:
        failed = await unavailable(source, f"cannot be opened: {describe_error(error)}", heard)
        raise (SessionForgotten(failed.failure) if heard.http.is_over else failed) from error
    if found is None and heard.http.is_over:
        raise SessionForgotten((await unavailable(source, "no longer knows the session", heard)).failure)
    if found is None:
        raise tool_failed("tool.failed", f"{who}: {refused.message if refused else 'no answer'}")
    texts = [message.content.text for message in found.messages if message.content.type == "text"]
    if not texts:
        raise tool_failed("tool.bad_output", f"the prompt {name} of {who} holds no text")
    return "\n\n".join(texts)


class McpTransport:
    """An open session with an MCP server. ``warnings`` lists faults of its tools, as in the port."""

    def __init__(
        self, source: McpTools, client: "Client", tools: "list[Tool]", heard: ServerOutput, timeout_s: float, keep: Keep
    ) -> None:
        self._take_tools(tools)
        self._notices = 0
        """The number of notices that the list of tools takes into account."""
        self._refreshing = anyio.Lock()
        self._keep = keep
        self.open = True
        self._heard = heard
        self._source = source
        self._who = f"MCP server {source.name}"
        self._client = client
        self._timeout_s = timeout_s
        self._states: set[str] = set()
        """States with which this session has asked for input."""

    def _take_tools(self, tools: "list[Tool]") -> None:
        self.specs = [ToolSpec(tool.name, tool.description or "", dict(tool.input_schema)) for tool in tools]
        self._tasks_only = {tool.name for tool in tools if tool.execution and tool.execution.task_support == "required"}

    @property
    def warnings(self) -> list[tuple[str, str, str]]:
        found = [(code, tool, f"{self._who}: {reason}") for code, tool, reason in self._heard.warnings]
        return list(dict.fromkeys(found))

    async def refresh(self) -> None:
        """List the tools again if the server has said that they have changed. If that fails, the tools stay as they
        were, and the next call tries again."""
        from mcp import MCPError

        async with self._refreshing:
            notices = self._heard.notices
            if notices == self._notices or self._is_over:
                return
            try:
                with anyio.fail_after(self._timeout_s):
                    tools = await list_tools(self._client, again=True)
            except (TimeoutError, MCPError, ValueError, RuntimeError, *LOST) as error:
                _log.warning("tool.server.unlisted", server=self._source.name, error=describe_error(error))
                return
            self._notices = notices
            self._take_tools(tools)

    async def call(self, tool: str, input: JSON, context: ToolCallContext) -> JSON:
        """Call a tool of the server. The text that the server prints during the call becomes part of a failure.

        :raises SessionForgotten: if an HTTP server has not executed the call because the session is over
        :raises ToolFailed: ``tool.failed`` if the server says so, ``tool.timeout``, ``tool.crashed`` if the server is
            gone, ``tool.bad_output`` if the answer cannot be read or does not fit the tool's own output schema
        """
        position, notices = self._heard.position, self._heard.notices
        try:
            output = await self._call_tool(tool, input, context)
            if tells_changes(self._client):
                await self._heard.wait_for_notice(notices, NOTICE_S)
            return output
        except SessionForgotten:
            raise
        except ToolFailed as failed:
            raise ToolFailed(with_printed(failed.failure, await self._heard.since(position))) from failed.__cause__

    async def _call_tool(self, tool: str, input: JSON, context: ToolCallContext) -> JSON:
        from mcp import MCPError

        if self._is_over:
            lost = self._lost_server(tool, "the session had ended")
            raise SessionForgotten(lost.failure) if self._source.url else lost
        if tool in self._tasks_only:
            why = "wants to be called as a task of protocol 2025-11-25, which Callboard does not speak"
            raise tool_failed("tool.unavailable", f"tool {tool} of {self._who} {why}", retryable=False)
        timeout_s = self._timeout_s if context.timeout_s is None else context.timeout_s
        try:
            with anyio.fail_after(timeout_s):
                result = await self._result(tool, input, context)
        except TimeoutError:
            message = f"tool {tool} of {self._who} did not answer within {timeout_s:g} s"
            raise tool_failed("tool.timeout", message, {"timeout_s": timeout_s}) from None
        except MCPError as error:
            raise await self._failure_of_error(tool, error, context) from error
        except LOST as error:
            raise self._lost_server(tool, describe_error(error)) from error
        except (RuntimeError, ValueError) as error:  # the SDK's checks of a result against schema and protocol
            if not self.open:
                raise self._lost_server(tool, describe_error(error)) from error
            raise tool_failed("tool.bad_output", f"tool {tool} of {self._who}: {describe_error(error)}") from error
        output = await self._output(tool, result)
        if result.is_error:
            raise self._failure_of_result(tool, result, output)
        if fault := self._misfit(tool, result):
            said = f"; it says: {text}" if (text := normalise_text(text_of(result))) else ""
            message = f"the result of tool {tool} of {self._who} {fault}{said}"
            raise tool_failed("tool.bad_output", message, {"output": bounded_details(output)})
        return output

    def _misfit(self, tool: str, result: "CallToolResult") -> str:
        """Return why a result does not fit the output schema of its tool; empty if it does, or without an applicable
        schema."""
        schema = self._heard.exchange.output_schemas.get(tool) if self._heard.exchange is not None else None
        if schema is None:
            return ""
        if result.structured_content is None and "structured_content" not in result.model_fields_set:
            return "has no structured content, although the tool has an output schema"
        try:
            found = violations(schema, normalise_json(result.structured_content))
        except Inapplicable as error:
            _log.warning("tool.schema.unusable", tool=tool, server=self._source.name, error=str(error))
            return ""
        told = "; ".join(violation_message(one) for one in found[:MISFITS_MAX])
        return f"does not fit its output schema: {told}" if found else ""

    async def _result(self, tool: str, input: JSON, context: ToolCallContext) -> "CallToolResult":
        if not isinstance(input, Mapping):
            raise tool_failed("tool.invalid_input", f"tool {tool} takes an object, not {type(input).__name__}")

        async def report(progress: float, total: float | None, message: str | None) -> None:
            share = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
            context.on_progress(shorten(normalise_text(message or share)))

        meta: Any = {IDEMPOTENCY_META: context.idempotency_key, **tracecontext.headers()}
        call = partial(self._client.call_tool, tool, dict(input), progress_callback=report, meta=meta)
        return await (call() if context.responses is None else self._resume_call(call, context))

    async def _resume_call(self, call: "partial[Any]", context: ToolCallContext) -> "CallToolResult":
        """Call a tool again, with a person's responses. A server may refuse the state of a session that is over: then
        it is asked from the beginning, and gets all responses so far as long as it makes the same requests."""
        from mcp import MCPError
        from mcp.types import ElicitResult

        from callboard.actors.tools.mcp_exchange import InputRequired

        rounds: list[Any] = [
            {name: ElicitResult.model_validate(one) for name, one in responses.items()}
            for responses in (*context.earlier, context.responses)
        ]
        try:
            return await call(input_responses=rounds[-1], request_state=context.state)
        except MCPError as error:
            is_ours = context.state is None or context.state in self._states
            if is_ours or self._is_over or isinstance(error.error.data, InputRequired):
                raise
        given: dict[str, Any] = {}
        for responses in rounds:
            try:
                return await call(**given)
            except MCPError as error:
                asked = error.error.data
                if not isinstance(asked, InputRequired) or asked.requests.keys() != responses.keys():
                    raise
                given = {"input_responses": responses, "request_state": asked.state}
        return await call(**given)

    def _asks(self, tool: str, asked: "InputRequired", round: int) -> ToolFailed:
        """Make the failure that becomes questions to a person, or says why it does not."""
        methods = {name: one.get("method") if isinstance(one, dict) else None for name, one in asked.requests.items()}
        others = sorted({str(method) for method in methods.values() if method != "elicitation/create"})
        if others:
            message = f"tool {tool} of {self._who} asks for {', '.join(others)}; only elicitation/create is answered"
            return tool_failed(INPUT_REQUIRED, message, retryable=False)
        if round >= ROUNDS_MAX:
            message = f"tool {tool} of {self._who} asked for input {ROUNDS_MAX} times without a result"
            return tool_failed(INPUT_REQUIRED, message, retryable=False)
        if asked.state is not None:
            self._states.add(asked.state)
        return tool_failed(INPUT_REQUIRED, f"tool {tool} of {self._who} asks for input", asked._asdict())

    async def _output(self, tool: str, result: "CallToolResult") -> JSON:
        try:
            return await output_of(result, self._keep)
        except ValueError as error:
            message = f"tool {tool} of {self._who}: a part of its output is not valid Base64: {error}"
            raise tool_failed("tool.bad_output", message) from error
        except NoAnswer as error:
            message = f"the output of tool {tool} of {self._who} cannot be kept: {error}"
            raise tool_failed("tool.unavailable", message, retryable=True) from error

    def _failure_of_result(self, tool: str, result: "CallToolResult", output: JSON) -> ToolFailed:
        """Return the failure for a result that is an error; contents other than text are in the details."""
        text = normalise_text(text_of(result))
        if not output:
            return tool_failed("tool.failed", f"tool {tool} of {self._who} reported an error without any content")
        if isinstance(output, str):
            return tool_failed("tool.failed", text)
        message = text or f"tool {tool} of {self._who} reported an error: {quote(output)}"
        return tool_failed("tool.failed", message, {"output": bounded_details(output)})

    async def _failure_of_error(self, tool: str, error: "MCPError", context: ToolCallContext) -> ToolFailed:
        """Return the failure for a call that got an error as its answer, or that the SDK gave up.

        The SDK makes errors whose numbers servers use as well: -32000 is "connection closed" for it, and for many
        servers that a tool failed. So the state of the session decides whether it has ended, not the number.
        """
        from callboard.actors.tools.mcp_exchange import InputRequired, SessionRefusal, UnreadableAnswer

        message, data = normalise_text(error.message), error.error.data
        if isinstance(data, InputRequired):
            return self._asks(tool, data, len(context.earlier) + (context.responses is not None))
        if isinstance(data, SessionRefusal):
            why = f"{self._who} did not call tool {tool}, because it no longer knows the session ({message})"
            return SessionForgotten(tool_failed("tool.crashed", why, {"server": self._source.name}).failure)
        if self._is_over:
            return self._lost_server(tool, message)
        if TOO_LARGE in message:
            return tool_failed(
                "tool.output_too_large", f"the output of tool {tool} of {self._who} is too large: {message}"
            )
        why = data.why if isinstance(data, UnreadableAnswer) else unread(message) if self._source.url else None
        if why is not None:
            return tool_failed("tool.bad_output", f"the answer of tool {tool} of {self._who} cannot be read: {why}")
        if self._source.url and is_lost(message):
            message = f"the connection to {self._who} ended before tool {tool} had answered ({message})"
            return tool_failed("tool.crashed", message, {"server": self._source.name}, retryable=True)
        details: dict[str, Any] = {"code": error.code}
        if data not in (None, "", {}, []):
            details["data"] = bounded_details(await without_binary(data, self._keep))
            message = message or quote(details["data"])
        message = message or f"tool {tool} reported error {error.code} without a message"
        return tool_failed("tool.failed", f"{self._who}: {message}", details)

    @property
    def _is_over(self) -> bool:
        return not self.open or self._heard.is_over

    def _lost_server(self, tool: str, why: str) -> ToolFailed:
        reopens = self._source.scope == "run" or self._source.url
        once = "the next call of its tools" if reopens else "the next execution of this node"
        remedy = f"{once} starts a new session"
        message = f"{self._who} was gone before tool {tool} had answered ({why}); {remedy}"
        return tool_failed("tool.crashed", message, {"server": self._source.name})
