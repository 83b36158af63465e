"""The ``model`` provider: a call that runs the agent loop of all languages."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, cast

import msgspec

from callboard.bus.effects import Failure, ModelReply, ModelRequest, ToolSpec, Usage, user
from callboard.bus.model_parameters import given_parameters
from callboard.bus.paths import last_id
from callboard.bus.work import TurnWork
from callboard.languages.agent import Conversation, Policy, converse, read_structured_answer
from callboard.languages.approvals.desk import make_consent
from callboard.languages.approvals.member import MEMBER, read_terms
from callboard.languages.computation import compute
from callboard.languages.flow.approvals import find_fault
from callboard.languages.flow.dispatches import Dispatch, Reply
from callboard.languages.flow.natives.sessions import in_session, tool_sources, translate_failure
from callboard.languages.flow.result import success
from callboard.languages.flow.rules import LASTING_SETTINGS
from callboard.languages.json_schema import schema_fault, violations
from callboard.languages.language import Failed, Node, Ok
from callboard.lib.json_types import JSON

TURNS_WITH_TOOLS = 20
"""The default number of turns of a conversation with tools."""

TEXT_SHOWN_CHARS_MAX = 2_000
"""How many characters of an answer that does not fit the schema the failure shows."""

_CODES: Mapping[str, tuple[str, str]] = {
    "model.timeout": ("Timeout", "timeout"),
    "model.rate_limited": ("Throttled", "error"),
    "model.overloaded": ("Unavailable", "error"),
    "model.unreachable": ("Unavailable", "error"),
    "model.refused": ("Refused", "error"),
    "agent.cut_short": ("CutShort", "error"),
    "agent.max_turns": ("OutOfTurns", "error"),
    "approval.expired": ("NotDecided", "timeout"),
}


class Metered:
    """A node that adds up the usage of its turns; all other operations are those of the wrapped node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.usage = Usage()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    async def turn(self, slot: str, request: ModelRequest, *, work: TurnWork | None = None) -> Ok[ModelReply] | Failed:
        outcome = await self._node.turn(slot, request, work=work)
        if isinstance(outcome, Ok):
            self.usage += outcome.value.usage
        return outcome


async def ask_model(request: Dispatch) -> Reply:
    """Have a model answer."""
    return await in_session(request, "model", _converse)


async def _converse(request: Dispatch, node: Node) -> Reply:
    schema = request.arguments.get("schema")
    if schema is not None and (fault := schema_fault(schema)):
        return Reply(request.make_failure("InvalidOutput", f"the schema is none: {fault}", retryable=False))
    if (wrong := find_fault(request)) is not None:
        return Reply(wrong)
    sources = tool_sources(request.arguments.get("tools", []))
    async with AsyncExitStack() as stack:
        tools: list[ToolSpec] = []
        if sources:
            opened = await stack.enter_async_context(node.toolbox(sources))
            if isinstance(opened, Failed):
                return Reply(translate_failure(request, opened.error, {}, "ToolsUnavailable"))
            tools = opened.value
        turns_max: int = request.arguments.get("max_turns", TURNS_WITH_TOOLS if tools else 1)
        metered = Metered(node)
        asked = _to_request(request.arguments, request.input, tools)
        consent = make_consent(
            request.stage, read_terms(request.arguments.get(MEMBER)), f"step {last_id(request.node.path)}"
        )
        policy = Policy(turns_max, lasting=request.stage.info.rules >= LASTING_SETTINGS, consent=consent)
        said = await converse(request.stage, cast(Node, metered), asked, policy)
    return await compute(request.stage, lambda: _to_reply(request, said, metered.usage))


def _to_request(arguments: dict[str, Any], input: JSON, tools: list[ToolSpec]) -> ModelRequest:
    prompt = arguments.get("prompt", input)
    text = prompt if isinstance(prompt, str) else msgspec.json.encode(prompt).decode()
    return ModelRequest(
        model=arguments.get("model"),
        system=arguments.get("system", ""),
        messages=[user(text)],
        tools=tools,
        schema=arguments.get("schema"),
        max_output_tokens=arguments.get("max_output_tokens"),
        temperature=arguments.get("temperature"),
        parameters=given_parameters(arguments),
    )


def _to_reply(request: Dispatch, said: Conversation, usage: Usage) -> Reply:
    metadata = _metadata(said, usage)
    if said.error is not None:
        return Reply(translate_failure(request, _failure(said.error), _CODES), metadata)
    assert said.reply is not None, "a conversation without an error has a reply"
    schema = request.arguments.get("schema")
    if schema is None:
        return Reply(success(said.reply.text), metadata)
    data = read_structured_answer(said.reply, asked=True)
    problems = violations(schema, data)
    if not problems:
        return Reply(success(data), metadata)
    details = {"problems": problems, "text": said.reply.text[:TEXT_SHOWN_CHARS_MAX]}
    message = f"the answer does not fit the schema: {'; '.join(problems)}"
    return Reply(request.make_failure("InvalidOutput", message, details=details, retryable=True), metadata)


def _failure(error: Failure) -> Failure:
    """Return a failure with the code of a refusal if a stop reason reports one."""
    match error.details:
        case {"stop_reason": "refusal" | "content_filter" | "safety"}:
            return msgspec.structs.replace(error, code="model.refused")
        case _:
            return error


def _metadata(said: Conversation, usage: Usage) -> dict[str, JSON]:
    metadata: dict[str, JSON] = {
        "turns": said.turns,
        "usage": msgspec.to_builtins(usage),
        "tools": [call.use.tool for call in said.calls],
    }
    if said.reply is not None:
        metadata["stop_reason"] = said.reply.stop_reason
        if said.reply.response_model:
            metadata["model"] = said.reply.response_model
    return metadata
