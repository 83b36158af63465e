"""Completions: names, files, runs and choices of an input that begin with the typed text."""

from collections.abc import Mapping, Sequence
from typing import Any

from mcp.server import ServerRequestContext
from mcp_types import CompleteRequestParams, CompleteResult, Completion, PromptReference

from callboard.surfaces.mcp.arguments import ListRuns
from callboard.surfaces.mcp.caller import caller_of
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
