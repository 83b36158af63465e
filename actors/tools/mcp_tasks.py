"""Tasks of MCP servers that answer a call later.

A call that is answered by a task is followed until the task has a result (the extension
``io.modelcontextprotocol/tasks`` of protocol 2026-07-28). A task that asks for input is cancelled, because this client
cannot answer; so is one whose call has lasted too long. Tasks of protocol 2025-11-25, a withdrawn experiment, are not
supported: tools that require them are refused.

This module imports much of the SDK, so only a connection that is being made imports it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import anyio
from mcp import MCPError
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.types import INTERNAL_ERROR, CallToolResult, Request, RequestParams, Result

if TYPE_CHECKING:
    from mcp.client.session import ClientSession

EXTENSION = "io.modelcontextprotocol/tasks"

POLL_S = 1.0
"""The polling interval if the server sets none; one that the server sets is kept within the limits below."""

POLL_MIN_S = 0.1
POLL_MAX_S = 10.0

CANCEL_WAIT_S = 2.0
"""How long a server may take to acknowledge that a task is cancelled."""


class _Named(RequestParams):
    task_id: str


class _Get(Request[_Named, Literal["tasks/get"]]):
    method: Literal["tasks/get"] = "tasks/get"
    params: _Named
    name_param = "taskId"


class _Cancel(Request[_Named, Literal["tasks/cancel"]]):
    method: Literal["tasks/cancel"] = "tasks/cancel"
    params: _Named
    name_param = "taskId"


class _Created(Result):
    """A task in place of a result."""

    result_type: Literal["task"] = "task"
    task_id: str
    poll_interval_ms: int | None = None


class _State(Result):
    """The state of a task."""

    status: Literal["working", "input_required", "completed", "failed", "cancelled"]
    status_message: str | None = None
    poll_interval_ms: int | None = None
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


class TaskExtension(ClientExtension):
    """Has calls wait for tasks as for any other result."""

    identifier = EXTENSION

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return (ResultClaim(result_type="task", model=_Created, resolve=_result),)


async def _result(created: _Created, context: ClaimContext) -> CallToolResult:
    """:raises MCPError: if the task has no result"""
    named = _Named(task_id=created.task_id)
    state: _State | None = None
    pause_ms = created.poll_interval_ms
    try:
        while True:
            state = await context.session.send_request(_Get(params=named), _State)
            match state.status:
                case "completed":
                    return CallToolResult.model_validate(state.result or {})
                case "failed":
                    error = state.error or {}
                    raise MCPError(
                        int(error.get("code", INTERNAL_ERROR)),
                        str(error.get("message", "its task failed")),
                        error.get("data"),
                    )
                case "cancelled":
                    raise MCPError(INTERNAL_ERROR, state.status_message or "its task was cancelled")
                case "input_required":
                    raise MCPError(INTERNAL_ERROR, "its task asks for input, which this client cannot answer")
                case "working":
                    pause_ms = state.poll_interval_ms or pause_ms
            pause_s = POLL_S if pause_ms is None else pause_ms / 1000
            await anyio.sleep(min(max(pause_s, POLL_MIN_S), POLL_MAX_S))
    finally:
        if state is None or state.status in ("working", "input_required"):
            await _cancel_task(context.session, named)


async def _cancel_task(session: "ClientSession", named: _Named) -> None:
    with anyio.CancelScope(shield=True), anyio.move_on_after(CANCEL_WAIT_S):
        try:
            await session.send_request(_Cancel(params=named), Result)
        except MCPError:
            return  # it has ended by now, or the server is gone
