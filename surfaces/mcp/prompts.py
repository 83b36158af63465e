"""Prompts: one for every definition, which makes the model start it; its inputs are the prompt's arguments."""

from collections.abc import Mapping
from typing import Any

import msgspec
from mcp import MCPError
from mcp.server import ServerRequestContext
from mcp.types import (
    INVALID_PARAMS,
    GetPromptRequestParams,
    GetPromptResult,
    ListPromptsResult,
    PaginatedRequestParams,
    Prompt,
    PromptArgument,
    PromptMessage,
    TextContent,
)

from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS
from callboard.surfaces.mcp.answers import Workflow
from callboard.surfaces.mcp.tools import Tools

WAIT_S = 60
"""The wait for the end of the run in the prompt's call; then the model has to look again."""


class Prompts:
    """A prompt for every valid definition of the tools' tenant and folders."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    async def list(
        self, _context: ServerRequestContext[Any, Any], _params: PaginatedRequestParams | None
    ) -> ListPromptsResult:
        """List the prompts."""
        return ListPromptsResult(prompts=[_prompt(name, one) for name, one in (await self._workflows()).items()])

    async def get(self, _context: ServerRequestContext[Any, Any], params: GetPromptRequestParams) -> GetPromptResult:
        """Return the prompt of a definition, with the given arguments filled in."""
        found = (await self._workflows()).get(params.name)
        if found is None:
            raise MCPError(INVALID_PARAMS, f"unknown prompt: {params.name!r}")
        text = _text(found, params.arguments or {})
        message = PromptMessage(role="user", content=TextContent(type="text", text=text))
        return GetPromptResult(description=_describe_arguments(found), messages=[message])

    async def _workflows(self) -> Mapping[str, Workflow]:
        found = (await self._tools.workflows(None)).workflows
        return {f"start:{one.name or one.file}": one for one in found if not one.problems}


def _prompt(name: str, workflow: Workflow) -> Prompt:
    fields = {**workflow.inputs, **workflow.arguments}
    return Prompt(
        name=name,
        title=f"Start {workflow.title or workflow.id}",
        description=_describe_arguments(workflow),
        arguments=[_argument(field, schema) for field, schema in fields.items()],
    )


def _argument(name: str, schema: Any) -> PromptArgument:
    known: Mapping[str, Any] = schema if isinstance(schema, Mapping) else {}
    text = str(known.get("description") or known.get("type") or "")
    return PromptArgument(name=name, description=text or None, required=bool(known.get("required", False)))


def _describe_arguments(workflow: Workflow) -> str:
    return workflow.description or f"Start the {workflow.language} {workflow.title or workflow.id}."


def _text(workflow: Workflow, filled: Mapping[str, str]) -> str:
    given: dict[str, Any] = {"name": workflow.name} if workflow.name else {"file": workflow.file}
    declared = {"input": workflow.inputs, "arguments": workflow.arguments}
    for member, fields in declared.items():
        if values := {name: _value(filled[name], schema) for name, schema in fields.items() if name in filled}:
            given[member] = values
    others = {name: value for name, value in filled.items() if not any(name in fields for fields in declared.values())}
    if others:
        given["input"] = {**given.get("input", {}), **others}
    missing = [name for fields in declared.values() for name in fields if name not in filled]
    call = msgspec.json.encode({**given, "wait_s": WAIT_S}).decode()
    lines = [f"Start “{workflow.title or workflow.id}” with the tool start_workflow and these arguments: {call}"]
    if missing:
        lines.append(f"It also has {', '.join(missing)}: fill in what you know, and ask me for the rest that it needs.")
    lines.append(
        "If it has not ended by then, check again with get_run; if it asks a question, ask me. Report the result."
    )
    return "\n".join(lines)


def _value(text: str, schema: Any) -> Any:
    """Convert an argument, which is always a text in prompts, to its declared type."""
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if kind in (None, "string"):
        return text
    try:
        return decode_json(text)
    except JSON_ERRORS:
        return text
