"""Results: the answers and errors of tools in the form of MCP.

A tool answers with structured content of its output schema, the same as JSON text, and links to related resources. An
error is a tool error that a model can read, as JSON text: ``{"error": {"code", "message", "where", "remedy",
"problems"}}``. It has no structured content: clients check that against the output schema, and drop what does not fit.
"""

import msgspec
import structlog
from mcp.types import CallToolResult, ContentBlock, ResourceLink, TextContent
from msgspec import Struct
from pydantic import ValidationError

from callboard.bus.errors import CallboardError
from callboard.bus.events import Problem
from callboard.lib.json_decoder import decode_json
from callboard.runtime.client.errors import UsageInvalid, known_error
from callboard.service.operations.operation import ApiError
from callboard.surfaces.mcp import answers
from callboard.surfaces.mcp.remedies import error_members, in_members
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
