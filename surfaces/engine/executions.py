"""Executions: the handlers that start, answer, cancel and show them."""

import time
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from typing import Any

import msgspec
from msgspec import Struct
from starlette.requests import Request

from callboard.bus.events import Problem
from callboard.bus.log.forks import origin_of
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.subjects import RunRef
from callboard.features.access.store import StoreSilent
from callboard.features.access.vouchers import Vouchers, with_voucher
from callboard.languages.problems import hint_at
from callboard.projections.lists.questions import Question
from callboard.projections.results import view_of
from callboard.projections.trace.execution_log import MILESTONE
from callboard.runtime.admission.command_routing import find_command_of_id
from callboard.runtime.admission.versions import find_registration
from callboard.runtime.client.client import Client
from callboard.service.operations.folding import Folding
from callboard.service.operations.operation import ApiError, Operation, outcome
from callboard.service.operations.operations import WAIT_MAX_S
from callboard.surfaces.engine.engine_requests import error_text, number_in, object_of, run_of, subject_of
from callboard.surfaces.engine.openapi import Fields
from callboard.surfaces.http.access import check_sees
from callboard.surfaces.http.request_body import ClientDisconnected, while_there

CHANNEL = "api"
"""The channel of answers: those of ``api`` skip the filter for messages that may not be answers."""

LISTED = 50
LISTED_MAX = 100
OPTIONS: Fields = {
    "trigger": "string",
    "start_from_node": "string",
    "user_id": "string",
    "skip_trigger_validation": "boolean",
    "parallel": "boolean",
}
START: Fields = {
    "trigger_data": "object",
    "input_data": "object",
    **OPTIONS,
    "async_execution": "boolean",
    "model": "string",
    "script": "object",
}
"""Members of a request to execute; those of `OPTIONS` are options of the start."""

UNKNOWN_MAX = 20
"""Limit of the warnings about members of a request that have no effect."""

ENDED = ("SUCCESS", "ERROR", "CANCELED", "TIMEOUT")


class Inline(Struct, frozen=True):
    """Part of ``POST /v2/execute``: the workflow in the request; the other members are as for a registered one."""

    workflow: dict[str, Any]


class Executions:
    """The executions of one tenant, of definitions in one ``language``."""

    def __init__(self, log: JetStreamLog, tenant: str, operations: Mapping[str, Operation], language: str) -> None:
        self._log = log
        self._tenant = tenant
        self._operations = operations
        self._language = language
        self._client = Client(log, tenant)
        self._vouchers = Vouchers(log, tenant)
        self._folding = Folding()

    # -- starts -------------------------------------------------------------------------------------------------------

    async def execute(self, request: Request) -> Any:
        """``POST /v2/workflows/{id}/execute``: start a registered workflow."""
        name = request.path_params["id"]
        kept = await find_registration(self._log, self._tenant, name)
        if kept is None or kept.language != self._language:
            return _failure_answer(f"Workflow {name} not found")
        return await self._start_run(request, name, {"name": name}, await object_of(request))

    async def execute_inline(self, request: Request) -> Any:
        """``POST /v2/execute``: start a workflow given in the request."""
        body = await object_of(request)
        try:
            workflow = msgspec.convert(body, Inline).workflow
        except msgspec.ValidationError as error:
            return _failure_answer(str(error))
        source = {"language": self._language, "source": msgspec.json.encode(workflow).decode()}
        metadata: Any = workflow.get("metadata")
        name = str(metadata.get("id", "")) if isinstance(metadata, dict) else ""
        return await self._start_run(request, name, source, body)

    async def _start_run(self, request: Request, name: str, definition: Any, body: dict[str, Any]) -> Any:
        data = body.get("trigger_data", body.get("input_data"))
        chosen = {name: body.get(name) for name in OPTIONS}
        options = {name: value for name, value in chosen.items() if value is not None}
        message: dict[str, Any] = {"definition": definition, "options": options}
        message |= {"input": data} if data is not None else {}
        message |= {"model": body["model"]} if "model" in body else {}
        message |= {"script": body["script"]} if "script" in body else {}
        if key := request.headers.get("idempotency-key"):
            message["run_id"] = key
        if by := subject_of(request).name:
            message["by"] = by
        begun = await outcome(self._operations["start"](self._tenant, message))
        if isinstance(begun, ApiError):
            return _failure_answer(error_text(begun))
        run = begun.run_id
        warned = {"warnings": warnings} if (warnings := [*_unknown_members(body), *begun.warnings]) else {}
        if body.get("async_execution", True) is not False:
            told = {"id": run, "workflow_id": name, "status": "RUNNING", "start_time": int(time.time() * 1000)}
            return {"success": True, "execution_id": run, "execution": {**told, "execution_id": run}, **warned}
        if begun.duplicate:
            check_sees(subject_of(request), await self._client.events(run))
        asked = {"run_id": run, "wait_s": WAIT_MAX_S}
        with suppress(ClientDisconnected):
            await while_there(request, lambda: outcome(self._operations["result"](self._tenant, asked)))
        execution = await self._execution(run)
        success = execution["status"] == "SUCCESS"
        error = {} if success else {"error": _reason(execution)}
        return {"success": success, "execution_id": run, "execution": execution, **error, **warned}

    # -- commands -----------------------------------------------------------------------------------------------------

    async def resume(self, request: Request) -> Any:
        """``POST /v2/executions/{id}/resume``: answer the question of an execution, or send the signal it awaits."""
        run = run_of(request)
        body = await object_of(request)
        execution = await self._execution(run)
        response = body.get("user_response", body.get("resume_data"))
        if response is None:
            raise ApiError(400, "api.malformed", "user_response is missing")
        told = {"message": "Execution resumed", "execution_id": run}
        if await self._told_before(request, run, "answer") or await self._told_before(request, run, "signal"):
            return told
        question = await self._question(run, body.get("node_id"), _key_of(execution, body.get("interaction_id")))
        by = _signature_members(request)
        if question is not None:
            answer = {"interaction": question.key, "user_response": response, "channel": CHANNEL, **by}
            try:
                vouched = await with_voucher(self._vouchers, run, answer, subject_of(request))
            except StoreSilent as error:
                raise ApiError(503, error.code, error.message, remedy=error.remedy) from None
            await self._tell(run, "answer", vouched)
        else:
            await self._tell(run, "signal", {"name": await self._awaited_node(run, body), "data": response, **by})
        return told

    async def milestone(self, request: Request) -> Any:
        """``POST /v2/executions/{id}/milestone``: record a milestone in the log of an execution."""
        run = run_of(request)
        body = await object_of(request)
        if not isinstance(body.get("message"), str):
            raise ApiError(400, "api.malformed", "message is missing or not a text")
        await self._execution(run)
        told = {name: body[name] for name in ("message", "user_message", "data") if body.get(name) is not None}
        await self._tell(run, "signal", {"name": MILESTONE, "data": told, **_signature_members(request)})
        return {"success": True, "execution_id": run}

    async def cancel(self, request: Request) -> Any:
        """``POST /v2/executions/{id}/cancel``: cancel an execution."""
        run = run_of(request)
        execution = await self._execution(run)
        if not await self._told_before(request, run, "cancel"):
            if execution["status"] in ENDED:
                return {"success": False, "message": f"Execution is {execution['status']}", "execution_id": run}
            await self._tell(run, "cancel", _signature_members(request))
        return {"success": True, "message": "Execution cancelled", "execution_id": run}

    async def _question(self, run: str, node: Any, key: str | None) -> Question | None:
        """Return the open question that a request answers, None if it answers none.

        :raises ApiError: if a ``key`` is given, and that question is not open
        """
        found = await self._ask_service("questions", {"run_id": run})
        open: list[Question] = found.questions
        chosen = [one for one in open if node in (None, _node(one.path)) and key in (None, one.key)]
        if not chosen and key is not None:
            where = f" of node {node!r}" if node is not None else ""
            raise ApiError(409, "answer.no_question", f"the interaction {key!r}{where} is not open")
        return chosen[0] if chosen else None

    async def _awaited_node(self, run: str, body: Mapping[str, Any]) -> str:
        """Return the node that waits for a signal.

        :raises ApiError: if no node of the request waits
        """
        shown = await self._ask_service("show", {"run_id": run})
        waiting = [_node(one.path) for one in shown.open if one.type == "signal.awaited"]
        node = body.get("node_id")
        chosen = [one for one in waiting if node in (None, one)]
        if not chosen:
            where = f"node {node!r}" if node is not None else "the execution"
            raise ApiError(409, "answer.no_question", f"{where} is not waiting")
        return chosen[0]

    async def _told_before(self, request: Request, run: str, verb: str) -> bool:
        """Whether an earlier request with this idempotency key has reached the run.

        :raises ApiError: if the run refused it
        """
        key = request.headers.get("idempotency-key", "")
        if await find_command_of_id(self._log, RunRef(self._tenant, run), verb, key) is None:
            return False
        body = {"id": key, "name": MILESTONE} if verb == "signal" else {"id": key}
        await self._tell(run, verb, body)
        return True

    async def _tell(self, run: str, verb: str, body: dict[str, Any]) -> None:
        await self._ask_service("tell", {"run_id": run, "verb": verb, "body": body})

    async def _ask_service(self, operation: str, asked: dict[str, Any]) -> Any:
        found = await outcome(self._operations[operation](self._tenant, asked))
        if isinstance(found, ApiError):
            # A command that the run refuses is a conflict, whether the run or the interface detects it.
            raise ApiError(409 if found.code == "tell.refused" else found.status, found.code, error_text(found))
        return found

    # -- queries ------------------------------------------------------------------------------------------------------

    async def show(self, request: Request) -> Any:
        """``GET /v2/executions/{id}``: an execution."""
        return await self._execution(run_of(request))

    async def progress(self, request: Request) -> Any:
        """``GET /v2/executions/{id}/progress``: the progress of an execution."""
        run = run_of(request)
        execution = await self._execution(run)
        nodes: dict[str, Any] = execution["node_executions"]
        done = sum(1 for one in nodes.values() if one["status"] in ("COMPLETED", "FAILED", "SKIPPED"))
        names = ("status", "current_node_id", "execution_sequence")
        told = {**{name: execution[name] for name in names}, "completed_nodes": done, "total_nodes": len(nodes)}
        return {"execution_id": run, "progress": told}

    async def list_executions(self, request: Request) -> Any:
        """``GET /v2/workflows/{id}/executions``: the executions of a workflow, newest first."""
        limit = max(1, number_in(request, "limit", LISTED, LISTED_MAX))
        of = {"definition": request.path_params["id"]}
        found = await self._ask_service("runs", {**of, "limit": limit})
        executions = [_head(await self._execution(row.run)) for row in found.runs]
        # Counted after the list was read: the total includes every listed execution, and possibly newer ones.
        total = (await self._ask_service("count", of)).count if found.more else len(executions)
        return {"executions": executions, "total_count": total, "has_more": found.more}

    async def _execution(self, run: str) -> dict[str, Any]:
        view = view_of(self._language)
        assert view is not None
        events = await self._client.events(run)
        execution = msgspec.to_builtins(await self._folding.fold(view.result(), events))
        # The first event of a fork has the time of its origin.
        created = execution["start_time"] if origin_of(events[0]) else _ms(events[0].time)
        return {**execution, "created_at": created, "updated_at": _ms(events[-1].time)}


def _unknown_members(body: Mapping[str, Any]) -> list[Problem]:
    """Warn of the members of a request to execute that have no effect."""
    known = [*START, *Inline.__struct_fields__]
    return [
        Problem(
            "start.unknown_field",
            f"{name!r} has no effect here{hint_at(name, known)}",
            name,
            expected=f"one of {', '.join(known)}",
            severity="warning",
        )
        for name in islice((name for name in body if name not in known), UNKNOWN_MAX)
    ]


def _failure_answer(error: str) -> dict[str, Any]:
    """Return the answer to a start that failed."""
    return {"success": False, "execution_id": "", "error": error}


def _reason(execution: Mapping[str, Any]) -> str:
    error = execution["error"]
    return str(error.get("error_message") or error.get("message") or error) if isinstance(error, dict) else str(error)


def _head(execution: Mapping[str, Any]) -> dict[str, Any]:
    names = ("id", "execution_id", "workflow_id", "status", "start_time", "end_time", "created_at", "updated_at")
    return {name: execution[name] for name in names}


def _key_of(execution: Mapping[str, Any], interaction: Any) -> str | None:
    """Return the key of the question that an ``interaction_id`` names: the id of its row, or the key itself."""
    rows: list[dict[str, Any]] = execution["hil_interactions"]
    keys = {one["id"]: one["interaction_key"] for one in rows}
    return None if interaction is None else keys.get(str(interaction), str(interaction))


def _node(path: str) -> str:
    return path.rpartition("/")[2].partition("[")[0]


def _ms(time: Any) -> int:
    return int(time.timestamp() * 1000)


def _signature_members(request: Request) -> dict[str, str]:
    """Return the members of a command that name its sender and the idempotency key of the request."""
    named = {"by": subject_of(request).name, "id": request.headers.get("idempotency-key", "")}
    return {member: value for member, value in named.items() if value}
