"""The MCP server: the table of tools, completions, and the handlers of all other requests.

If a run asks a question while a call waits for its end, the question is put to the person at the client, if the client
supports that: at once, or (protocol 2026-07-28) by a result that requests input, after which the client repeats the
call. Completions are names, files, runs and choices of an input that begin with the typed text.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
from mcp import MCPError
from mcp.server import Server, ServerRequestContext
from mcp.server.context import CallNext, HandlerResult
from mcp.types import (
    INVALID_REQUEST,
    CallToolRequestParams,
    CompleteRequestParams,
    CompleteResult,
    Completion,
    ElicitResult,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    PromptReference,
    Tool,
    ToolAnnotations,
)
from msgspec import Struct
from pydantic import ValidationError

from callboard.bus.errors import CallboardError
from callboard.bus.tracecontext import read, within
from callboard.features.access.subject import Scope
from callboard.lib.installed import version
from callboard.lib.json_errors import JSON_ERRORS
from callboard.service.operations.requests import QuestionList, RunList
from callboard.surfaces.http.access import check
from callboard.surfaces.mcp import answers, arguments
from callboard.surfaces.mcp.arguments import ListRuns
from callboard.surfaces.mcp.caller import ANSWER_SCOPE, TASKS, Caller, InputNeeded, State, caller_of, heard, name_of
from callboard.surfaces.mcp.http import subject_of
from callboard.surfaces.mcp.prompts import Prompts
from callboard.surfaces.mcp.resources import Resources
from callboard.surfaces.mcp.results import answer_result, error_of, error_result
from callboard.surfaces.mcp.tasks import OfTask, Tasks, UpdateTask
from callboard.surfaces.mcp.tools import Tools

VALUES_MAX = 100
"""The protocol's limit of one answer."""


class Completions:
    """Completes the arguments of prompts, and the variables of resources' URIs."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    async def complete(self, context: ServerRequestContext[Any, Any], params: CompleteRequestParams) -> CompleteResult:
        """Return the completions of an argument."""
        argument = params.argument
        if isinstance(params.ref, PromptReference):
            values = await self._choices(params.ref.name, argument.name)
        elif argument.name == "run_id":
            newest = ListRuns.model_validate({"limit": VALUES_MAX})
            values = [row.run for row in (await self._tools.list_runs(newest, caller_of(context))).runs]
        else:
            found = (await self._tools.workflows(None)).workflows
            values = [text for one in found if (text := one.name if argument.name == "name" else one.file)]
        fitting = [value for value in values if value.startswith(argument.value)]
        return CompleteResult(completion=Completion(values=fitting[:VALUES_MAX], has_more=len(fitting) > VALUES_MAX))

    async def _choices(self, prompt: str, name: str) -> Sequence[str]:
        for one in (await self._tools.workflows(None)).workflows:
            if prompt == f"start:{one.name or one.file}":
                schema = {**one.inputs, **one.arguments}.get(name)
                return [str(value) for value in schema.get("enum", ())] if isinstance(schema, Mapping) else ()
        return ()


NAME = "callboard"

METHOD_SCOPES: Mapping[str, Scope] = {
    "resources/list": "read",
    "resources/read": "read",
    "prompts/list": "read",
    "prompts/get": "read",
    "completion/complete": "read",
    "tasks/get": "read",
    "tasks/update": ANSWER_SCOPE,
    "tasks/cancel": "operate",
}
"""Scopes of requests that call no tool."""

INSTRUCTIONS = """\
Callboard runs AI workflows; every run is kept as a log of events. list_workflows lists the workflows with their inputs
and, for flows, their arguments; start_workflow starts a run and, with wait_s, returns its result. A run continues in
the background: get_run shows its state and what it waits for, watch_run the events since your last call. Check a
workflow that you have written with validate_workflow before you start it. Every error contains a remedy."""


class ToolEntry(Struct, frozen=True):
    """A tool: its arguments and answer, its handler, hints about its effects, and the scope that it needs."""

    title: str
    takes: type[arguments.Arguments]
    answers: type[Struct]
    serve: Callable[[Any, Caller], Awaitable[Struct]]
    annotations: ToolAnnotations
    scope: Scope = "read"

    def describe(self, name: str) -> Tool:
        schema = self.takes.model_json_schema()
        return Tool(
            name=name,
            title=self.title,
            description=schema.pop("description"),
            input_schema=schema,
            output_schema=answers.schema_of(self.answers),
            annotations=self.annotations,
        )


def entries(tools: Tools) -> dict[str, ToolEntry]:
    """Every tool, by name."""
    reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    starts = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=True)
    tells = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=True)
    ends = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False)
    take, told = arguments, answers.Told
    return {
        "list_workflows": ToolEntry(
            "List workflows", take.ListWorkflows, answers.Workflows, tools.list_workflows, reads
        ),
        "validate_workflow": ToolEntry(
            "Validate a workflow", take.ValidateWorkflow, answers.Validation, tools.validate_workflow, reads
        ),
        "start_workflow": ToolEntry(
            "Start a workflow", take.StartWorkflow, answers.Run, tools.start_workflow, starts, "start"
        ),
        "get_run": ToolEntry("Look at a run", take.GetRun, answers.Run, tools.get_run, reads),
        "list_runs": ToolEntry("List runs", take.ListRuns, RunList, tools.list_runs, reads),
        "watch_run": ToolEntry("Watch a run", take.WatchRun, answers.Page, tools.watch_run, reads),
        "list_questions": ToolEntry("List questions", take.ListQuestions, QuestionList, tools.list_questions, reads),
        "answer_question": ToolEntry("Answer a question", take.AnswerQuestion, told, tools.tell, tells, ANSWER_SCOPE),
        "signal_run": ToolEntry("Signal a run", take.SignalRun, told, tools.tell, tells, "operate"),
        "resume_run": ToolEntry("Resume a run", take.ResumeRun, told, tools.tell, tells, "operate"),
        "cancel_run": ToolEntry("Cancel a run", take.CancelRun, told, tools.tell, ends, "operate"),
    }


def mcp_server(tools: Tools) -> Server[Any]:
    """Make the server; it serves any number of sessions."""
    table = entries(tools)
    listed = [entry.describe(name) for name, entry in table.items()]
    tasks, resources, prompts = Tasks(tools), Resources(tools), Prompts(tools)

    async def list_tools(
        _context: ServerRequestContext[Any, Any], _params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        return ListToolsResult(tools=listed)

    async def call_tool(context: ServerRequestContext[Any, Any], params: CallToolRequestParams) -> Any:
        entry = table.get(params.name)
        if entry is None:
            known = ", ".join(table)
            return error_result(
                CallboardError("mcp.tool_unknown", f"unknown tool: {params.name!r}", remedy=f"Use one of {known}.")
            )
        with within(read(params.meta or {})):
            return await outcome(entry, params, caller_of(context))

    async def outcome(entry: ToolEntry, params: CallToolRequestParams, caller: Caller) -> Any:
        try:
            check(caller.subject, entry.scope)
            asked = entry.takes.model_validate(params.arguments or {})
            if params.request_state is not None:
                return answer_result(await _resume_call(tools, asked, params, caller))
            # A client that accepts tasks gets one at once instead of waiting.
            as_task = isinstance(asked, arguments.StartWorkflow) and caller.tasks and asked.wait_s > 0
            answer = await entry.serve(asked.model_copy(update={"wait_s": 0.0}) if as_task else asked, caller)
            if as_task and isinstance(answer, answers.Run):
                return await tasks.create(answer.run_id)
            return answer_result(answer)
        except InputNeeded as needed:
            state = msgspec.json.encode(needed.state).decode()
            return InputRequiredResult(input_requests={**needed.requests}, request_state=state)
        except (Exception, BaseExceptionGroup) as error:
            return error_result(error_of(error))

    server: Server[Any] = Server(
        NAME,
        version=version("callboard"),
        title="Callboard",
        description="Start AI workflows, watch them, and read their results.",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=resources.list,
        on_list_resource_templates=resources.templates,
        on_read_resource=resources.read,
        on_list_prompts=prompts.list,
        on_get_prompt=prompts.get,
        on_completion=Completions(tools).complete,
    )
    server.middleware.append(_check_permission)
    server.extensions[TASKS] = {}
    server.add_request_handler("tasks/get", OfTask, tasks.get)
    server.add_request_handler("tasks/update", UpdateTask, tasks.update)
    server.add_request_handler("tasks/cancel", OfTask, tasks.cancel)
    return server


async def _check_permission(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Pass a request on if its caller has the scope it needs."""
    wanted = METHOD_SCOPES.get(ctx.method)
    if wanted is not None and not (subject := subject_of(ctx.request)).may(wanted):
        raise MCPError(INVALID_REQUEST, f"this request needs the scope {wanted!r}, which {subject.name} does not have")
    return await call_next(ctx)


async def _resume_call(
    tools: Tools, asked: arguments.Arguments, params: CallToolRequestParams, caller: Caller
) -> answers.Run:
    """Continue a call that was interrupted by a question: its run has been started, and may have been answered."""
    try:
        state = msgspec.json.decode(params.request_state or "", type=State)
        arguments.GetRun.model_validate({"run_id": state.run_id})
    except (*JSON_ERRORS, ValidationError) as error:
        raise CallboardError("mcp.arguments", f"invalid state of the call: {error}") from error
    responses = params.input_responses or {}
    if responses:
        check(caller.subject, ANSWER_SCOPE)
    for question in await tools.awaiting.questions(state.run_id):
        result = responses.get(name_of(question))
        if isinstance(result, ElicitResult):
            accepted, response = heard(question, result)
            if accepted:
                await tools.awaiting.send_answer(question, response, caller)
    caller.asked |= {*state.asked, *responses}
    wait_s = asked.wait_s if isinstance(asked, arguments.StartWorkflow | arguments.GetRun) else 0.0
    return await tools.awaiting.run(state.run_id, wait_s, caller)
