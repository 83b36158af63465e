"""Results: the answers and errors of tools in the form of MCP.

A tool answers with structured content of its output schema, the same as JSON text, and links to related resources. An
error is a tool error that a model can read, as JSON text: ``{"error": {"code", "message", "where", "remedy",
"problems"}}``. It has no structured content: clients check that against the output schema, and drop what does not fit.
Its remedy names tools instead of commands.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec
import structlog
from mcp.types import CallToolResult, ContentBlock, ResourceLink, TextContent
from msgspec import Struct
from pydantic import ValidationError

from callboard.bus.errors import CallboardError
from callboard.bus.events import Problem
from callboard.lib.json_decoder import decode_json
from callboard.runtime.client.errors import UsageInvalid, error_object, known_error
from callboard.service.operations.operation import ApiError
from callboard.surfaces.mcp import answers
from callboard.surfaces.mcp.uris import JSON_TYPE, result_uri, trace_uri

logger = structlog.get_logger(__name__)

ANSWER_BYTES_MAX = 4 * 1024 * 1024
"""Larger answers would overload the client; their parts can be read from the log."""


def answer_result(answer: Struct) -> CallToolResult:
    """Return the answer of a tool as its result."""
    body = msgspec.json.encode(answer)
    if len(body) > ANSWER_BYTES_MAX:
        message = f"the answer has {len(body)} bytes; the limit is {ANSWER_BYTES_MAX}"
        return error_result(
            CallboardError("mcp.too_large", message, remedy="Read the run event by event with watch_run.")
        )
    content: list[ContentBlock] = [TextContent(type="text", text=body.decode())]
    if isinstance(answer, answers.Run):
        content += _links(answer)
    return CallToolResult(content=content, structured_content=decode_json(body))


def _links(run: answers.Run) -> list[ResourceLink]:
    rows = [
        (trace_uri(run.run_id), "trace", f"The trace of {run.run_id}: nodes, model turns and tool calls, with times.")
    ]
    if run.ended:
        rows.append((result_uri(run.run_id), "result", f"The result of {run.run_id}."))
    return [
        ResourceLink(type="resource_link", uri=uri, name=f"{run.run_id}-{what}", description=text, mime_type=JSON_TYPE)
        for uri, what, text in rows
    ]


def error_result(error: CallboardError) -> CallToolResult:
    """Return an error as a tool's result."""
    text = msgspec.json.encode({"error": error_members(error)}).decode()
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)


def error_of(error: Exception | BaseExceptionGroup[BaseException]) -> CallboardError:
    """Convert any exception to a `CallboardError`."""
    match error:
        case ValidationError():
            return _ill_formed(error)
        case ApiError():
            return FromApi(error)
        case UsageInvalid():
            return CallboardError("mcp.arguments", in_members(error.message), in_members(error.where))
        case _:
            pass
    found = known_error(error)
    if found is None:
        logger.error("tool failed unexpectedly", exc_info=error)
        found = CallboardError("internal", type(error).__name__, remedy="The server's log has the traceback.")
    return found


class IllFormed(CallboardError):
    """A tool was called with invalid arguments; ``problems`` lists all problems."""

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
    """A refusal of the service's verbs."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.code, error.message, str(error.more.get("where", "")), str(error.more.get("remedy", "")))
        self.problems = error.problems


REMEDIES: Mapping[str, str] = {
    "run.unknown": "list_runs lists the runs.",
    "client.no_verdict": "The message waits for a worker; get_run shows the run as soon as a worker has accepted it.",
    "definition.unknown": "list_workflows lists the registered definitions; or pass file or source.",
    "definition.version_unknown": "list_workflows lists the registered definitions in their current version.",
}
"""Remedies by error code that differ from those of the command line."""

OTHERWISE = "get_run shows the state of a run; list_runs and list_workflows list runs and definitions."
"""The remedy for errors whose own remedy names a command."""

_COMMAND = "`callboard "
_ASIDE = re.compile(r" \((?:--[a-z-]+|[^()]*`callboard [^()]*)\)")
_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]*)( [A-Z]+)?\b")
_MEMBERS = {"value": "input", "option": "options"}


def error_members(error: CallboardError) -> dict[str, Any]:
    """Return an error as an object: code, message, where, remedy and problems, without empty members."""
    found = error_object(error)
    remedy = REMEDIES.get(error.code, OTHERWISE if _COMMAND in error.remedy else error.remedy)
    problems: list[Problem] = getattr(error, "problems", [])
    worded = [
        msgspec.structs.replace(one, expected=_ASIDE.sub("", one.expected)) if one.expected else one for one in problems
    ]
    found |= {"remedy": remedy, "problems": msgspec.to_builtins(worded)}
    return {name: value for name, value in found.items() if value}


def in_members(text: str) -> str:
    """Return a text about a command's options with the names of a tool's arguments instead."""
    return _OPTION.sub(lambda found: _MEMBERS.get(found[1], found[1].replace("-", "_")), text)
