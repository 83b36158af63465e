"""The server: the table of tools as MCP has it, and what becomes of errors.

A tool answers with structured content of its output schema, and the same as JSON text. What is refused, unknown or not
there is a tool error that a model can read, as JSON text: ``{"error": {"code", "message", "where", "remedy",
"problems"}}``. It has no structured content: clients hold that against the output schema, and drop what does not fit.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import msgspec
import structlog
from mcp.server import Server, ServerRequestContext
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)
from msgspec import Struct
from pydantic import ValidationError

from callboard.bus.errors import CallboardError
from callboard.bus.events import Problem
from callboard.bus.tracecontext import read, within
from callboard.runtime.api.verbs import ApiError
from callboard.runtime.mcp import answers, arguments
from callboard.runtime.mcp.tools import Report, Tools
from callboard.runtime.operations.errors import UsageInvalid, error_object, known_error

logger = structlog.get_logger(__name__)

NAME = "callboard"

ANSWER_BYTES_MAX = 4 * 1024 * 1024
"""A larger answer would choke whoever asked; its parts can be had from the log."""

INSTRUCTIONS = """\
Callboard runs AI workflows; every run is kept as a log of events. list_workflows says what there is to start, which
inputs each takes and, of a flow, which arguments; start_workflow starts a run and, with wait_s, returns its result. A
run goes on by itself: get_run says how it stands and what it waits for, watch_run what happened since you last looked.
Check a workflow that you have written with validate_workflow before you start it. An error says what to do about it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A tool: what it takes and answers, who serves it, and what it does to the world."""

    title: str
    takes: type[arguments.Arguments]
    answers: type[Struct]
    serve: Callable[[Any, Report], Awaitable[Struct]]
    annotations: ToolAnnotations

    def described(self, name: str) -> Tool:
        return Tool(
            name=name,
            title=self.title,
            description=(self.serve.__doc__ or "").strip(),
            input_schema=self.takes.model_json_schema(),
            output_schema=answers.schema_of(self.answers),
            annotations=self.annotations,
        )


def entries(tools: Tools) -> dict[str, Entry]:
    """Every tool, by name."""
    reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    starts = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=True)
    tells = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=True)
    ends = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False)
    rows = [
        ("List workflows", arguments.ListWorkflows, answers.Workflows, tools.list_workflows, reads),
        ("Validate a workflow", arguments.ValidateWorkflow, answers.Validation, tools.validate_workflow, reads),
        ("Start a workflow", arguments.StartWorkflow, answers.Run, tools.start_workflow, starts),
        ("Look at a run", arguments.GetRun, answers.Run, tools.get_run, reads),
        ("List runs", arguments.ListRuns, answers.Runs, tools.list_runs, reads),
        ("Watch a run", arguments.WatchRun, answers.Page, tools.watch_run, reads),
        ("List questions", arguments.ListQuestions, answers.Questions, tools.list_questions, reads),
        ("Answer a question", arguments.AnswerQuestion, answers.Told, tools.answer_question, tells),
        ("Signal a run", arguments.SignalRun, answers.Told, tools.signal_run, tells),
        ("Resume a run", arguments.ResumeRun, answers.Told, tools.resume_run, tells),
        ("Cancel a run", arguments.CancelRun, answers.Told, tools.cancel_run, ends),
    ]
    return {serve.__name__: Entry(title, takes, gives, serve, hints) for title, takes, gives, serve, hints in rows}


def mcp_server(tools: Tools) -> Server[Any]:
    """Make the server; it serves any number of sessions."""
    table = entries(tools)
    listed = [entry.described(name) for name, entry in table.items()]

    async def list_tools(
        _context: ServerRequestContext[Any], _params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        return ListToolsResult(tools=listed)

    async def call_tool(context: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
        told = 0

        async def report(line: str) -> None:
            nonlocal told
            told += 1
            await context.session.report_progress(told, message=line)

        entry = table.get(params.name)
        if entry is None:
            known = ", ".join(table)
            return _failed(
                CallboardError("mcp.tool_unknown", f"there is no tool {params.name!r}", remedy=f"See {known}.")
            )
        with within(read(params.meta or {})):
            return await _outcome(entry, params.arguments or {}, report)

    return Server(
        NAME,
        version=version("callboard"),
        title="Callboard",
        description="Start AI workflows, watch them, and read what they did.",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def _outcome(entry: Entry, given: dict[str, Any], report: Report) -> CallToolResult:
    try:
        body = msgspec.json.encode(await entry.serve(entry.takes.model_validate(given), report))
    except ValidationError as error:
        return _failed(_ill_formed(error))
    except ApiError as error:
        return _failed(FromApi(error))
    except UsageInvalid as error:
        return _failed(CallboardError("mcp.arguments", error.message, error.where))
    except (Exception, BaseExceptionGroup) as error:
        found = known_error(error)
        if found is None:
            logger.exception("tool failed unexpectedly")
            found = CallboardError("internal", type(error).__name__, remedy="The server's log has the traceback.")
        return _failed(found)
    if len(body) > ANSWER_BYTES_MAX:
        message = f"the answer has {len(body)} bytes, and at most {ANSWER_BYTES_MAX} are sent"
        return _failed(CallboardError("mcp.too_large", message, remedy="Read the run event by event with watch_run."))
    return CallToolResult(
        content=[TextContent(type="text", text=body.decode())], structured_content=msgspec.json.decode(body)
    )


def _failed(error: CallboardError) -> CallToolResult:
    found = {"error": {name: value for name, value in error_object(error).items() if value}}
    text = msgspec.json.encode(found).decode()
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)


class IllFormed(CallboardError):
    """A tool was called with arguments that it does not take; ``problems`` has everything that is wrong."""

    def __init__(self, problems: list[Problem]) -> None:
        message = f"the arguments have {len(problems)} problem{'s' if len(problems) != 1 else ''}"
        super().__init__("mcp.arguments", message, remedy="See the tool's input schema.")
        self.problems = problems


def _ill_formed(error: ValidationError) -> CallboardError:
    problems: list[Problem] = []
    for details in error.errors(include_url=False, include_context=False, include_input=False):
        where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in details["loc"]).lstrip(".")
        problems.append(Problem("mcp.argument", details["msg"].removeprefix("Value error, "), where))
    return IllFormed(problems)


class FromApi(CallboardError):
    """What the verbs of the service refuse."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.code, error.message, str(error.more.get("where", "")), str(error.more.get("remedy", "")))
        self.problems = error.problems
