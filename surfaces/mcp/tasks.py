"""Tasks: runs as tasks of MCP (the extension ``io.modelcontextprotocol/tasks`` of protocol 2026-07-28).

A task's id is the id of its run, so that every server of the same log knows it, even after a restart. The questions of
a run are the input requests of its task, one for each question.
"""

import datetime as dt
from collections.abc import Sequence
from typing import Any

from mcp import MCPError
from mcp.server import ServerRequestContext
from mcp.types import INVALID_PARAMS, METHOD_NOT_FOUND, ElicitResult, InputResponses, RequestParams
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel

from callboard.bus import events as ev
from callboard.bus.errors import CallboardError
from callboard.bus.events import Event
from callboard.projections.lists.questions import Question, Questions
from callboard.projections.projection import fold, known_payload
from callboard.service.operations.results import result_of
from callboard.surfaces.mcp.arguments import CancelRun
from callboard.surfaces.mcp.caller import Caller, caller_of, heard, name_of, to_elicitation
from callboard.surfaces.mcp.results import answer_result
from callboard.surfaces.mcp.run_reports import run_of
from callboard.surfaces.mcp.tools import Tools

POLL_MS = 1_000
"""How often a client is asked to poll."""

_COMPLETE = {"resultType": "complete"}


class OfTask(RequestParams):
    """The id of a task."""

    task_id: str


class UpdateTask(OfTask):
    """The answers of the person at the client."""

    input_responses: InputResponses


class Tasks:
    """Serves runs as tasks."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    async def create(self, run_id: str) -> dict[str, Any]:
        """Return the task of a run instead of its result."""
        return {"resultType": "task", **_task(await self._tools.events(run_id)), "status": "working"}

    async def get(self, context: ServerRequestContext[Any, Any], params: OfTask) -> dict[str, Any]:
        """Return the state of a task, with its result if it has one."""
        caller = _modern(context)
        events = await self._events(params.task_id)
        run = run_of(events)
        if run.ended and run.status == "cancelled":
            more: dict[str, Any] = {"status": "cancelled"}
        elif run.ended:
            more = {"status": "completed", "result": _wire(answer_result(run))}
        elif requests := {name_of(one): to_elicitation(one) for one in _open(events) if caller.can_ask(one)}:
            wire = {
                name: one.model_dump(mode="json", by_alias=True, exclude_none=True) for name, one in requests.items()
            }
            more = {"status": "input_required", "inputRequests": wire}
        else:
            more = {"status": "working", "statusMessage": run.status}
        return {**_COMPLETE, **_task(events), **more}

    async def update(self, context: ServerRequestContext[Any, Any], params: UpdateTask) -> dict[str, Any]:
        """Answer questions of a task; answers to unknown or closed questions are ignored."""
        caller = _modern(context)
        for question in _open(await self._events(params.task_id)):
            result = params.input_responses.get(name_of(question))
            if isinstance(result, ElicitResult):
                accepted, response = heard(question, result)
                if accepted:
                    await self._tools.awaiting.send_answer(question, response, caller)
        return _COMPLETE

    async def cancel(self, context: ServerRequestContext[Any, Any], params: OfTask) -> dict[str, Any]:
        """Cancel a task's run, if it has not ended."""
        caller = _modern(context)
        events = await self._events(params.task_id)
        if events[-1].type not in ev.AT_REST:
            asked = {"run_id": params.task_id, "reason": "its task was cancelled"}
            await self._tools.tell(CancelRun.model_validate(asked), caller)
        return _COMPLETE

    async def _events(self, run_id: str) -> Sequence[Event]:
        try:
            return await self._tools.events(run_id)
        except (CallboardError, ValueError) as error:
            raise MCPError(INVALID_PARAMS, f"unknown task: {run_id!r}") from error


def _modern(context: ServerRequestContext[Any, Any]) -> Caller:
    if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        raise MCPError(METHOD_NOT_FOUND, "Method not found", context.method)
    return caller_of(context)


def _open(events: Sequence[Event]) -> list[Question]:
    """Return the open questions without an answer: one with an answer is being checked, and is not asked again."""
    replies = (known_payload(event) for event in events if event.type == ev.HumanAnswered.type)
    answers = {reply.interaction for reply in replies if isinstance(reply, ev.HumanAnswered)}
    return [question for question in fold(Questions(), events) if question.key not in answers]


def _task(events: Sequence[Event]) -> dict[str, Any]:
    first, last = events[0], events[-1]
    # A fork without new events has no time of acceptance.
    created = result_of(events).accepted_at or last.time
    times = {"createdAt": _time(created), "lastUpdatedAt": _time(last.time)}
    return {"taskId": first.run, **times, "ttlMs": None, "pollIntervalMs": POLL_MS}


def _wire(model: BaseModel) -> dict[str, Any]:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def _time(moment: dt.datetime) -> str:
    return moment.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")
