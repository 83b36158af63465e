"""The runner of AI_AGENT: it reads the memory, opens the tools, lets a model work, and writes the memory."""

from contextlib import AsyncExitStack
from itertools import islice
from operator import is_
from typing import Any

from msgspec.structs import replace

from callboard.bus.effects import ModelRequest, ToolSpec, Usage, user
from callboard.bus.tool_names import names_of
from callboard.languages.agent import Called, ConversationLimits, ConversationResult, Offer, converse
from callboard.languages.approvals.approvals import make_consent
from callboard.languages.approvals.member import MEMBER, read_terms
from callboard.languages.approvals.terms import ANY, Terms
from callboard.languages.graph.expressions import text_of
from callboard.languages.graph.memory import MemoryContents, model_of, recall, remember
from callboard.languages.graph.no_effect import INEFFECTIVE
from callboard.languages.graph.tools import Served, resolve_tools
from callboard.languages.graph.turn_parameters import settings_of, turn_parameters
from callboard.languages.graph.work import Meter, NodeAttempt, NodeFailed, Outputs, failed_effect, number, result
from callboard.languages.language import Failed, Toolbox
from callboard.languages.tool_names import DistinctTools
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS
from callboard.lib.json_types import JSON

TURNS_MAX = 5
"""How many turns an agent has by default."""

OF_INPUT = ("user_prompt", "message", "user_message", "user_input", "input", "query", "text", "content")
OF_TRIGGER = ("message", "user_message", "user_input", "text", "content")
"""The members of the input, and of the trigger's data, that may hold the user's message."""

PICTURES = "images"
"""The member of the input that the tables of agents declare for pictures, which are not sent to a model."""

UNOPENED = "graph.tools"
"""The code of the warning that a node's tools are not available."""

UNAPPROVED = "graph.approve"
"""The code of the warning that an agent's ``approve`` names tools that it does not have."""

MAX_ITERATIONS = "max_iterations"

OUT_OF_TURNS, CUT_SHORT = "graph.max_iterations", "graph.cut_short"
"""The codes of the warnings that an agent ended before its model was done."""


async def agent(work: NodeAttempt) -> Outputs:
    """AI_AGENT: a model answers the user's message with the tools and memories that are attached to the node."""
    said = await work.compute(user_message)
    if work.input_member(PICTURES):
        work.node.warn(INEFFECTIVE, f"`{PICTURES}` of the input is not sent to the model", [PICTURES])
    meter = Meter()
    work = replace(work, spend=meter.wrap(work.spend))
    attached = [work.context.graph.attached[name] for name in work.spec.attached if name in work.context.graph.attached]
    memories = [one for one in attached if one.type == "MEMORY"]
    tools = [resolve_tools(one, work.context) for one in attached if one.type == "TOOL"]
    remembered = await recall(work, memories, said)
    async with AsyncExitStack() as stack:
        opened = await _open_tools(work, stack, tools)
        offer = _Tools(work, opened).offer
        offered = offer().tools
        request = await work.compute(_request, said, remembered, offered)
        talk = await converse(work.stage, work.metered_node, request, offer().policy, offer)
    _warn_of_early_end(work, talk)
    made, details = _outputs(work, talk, meter.usage)
    if attached:
        details["attached"] = {"memory": [one.id for one in memories], "tools": [tool.name for tool in offered]}
    await remember(work, memories, said, made["content"], made["metadata"])
    return Outputs(result(made).ports, details)


# -- the request -------------------------------------------------------------------------------------------------------


def user_message(work: NodeAttempt) -> str:
    """Find the user's message: in the input, else in the node's configuration, else in the trigger's data.

    :raises NodeFailed: if none of these has a message
    """
    data, trigger = work.data, work.context.trigger_data
    found = data if isinstance(data, str) else _first(data, OF_INPUT)
    found = found or work.text("user_prompt") or (trigger if isinstance(trigger, str) else _first(trigger, OF_TRIGGER))
    if not found and isinstance(trigger, dict) and isinstance(event := trigger.get("event"), dict):
        found = text_of(event.get("text"))
    if not found.strip():
        where = f"the input ({', '.join(OF_INPUT)}) nor the trigger's data ({', '.join(OF_TRIGGER)}, event.text)"
        raise NodeFailed("graph.no_user_message", f"there is no user message: neither {where} has one", final=True)
    return found


def _first(data: JSON, names: tuple[str, ...]) -> str:
    if not isinstance(data, dict):
        return ""
    return next((text for name in names if (text := text_of(data.get(name))).strip()), "")


def _request(work: NodeAttempt, said: str, remembered: MemoryContents, tools: list[ToolSpec]) -> ModelRequest:
    given = settings_of(work.spec)
    most = next((given[name] for name in ("max_tokens", "max_output_tokens") if given.get(name) is not None), None)
    temperature = given.get("temperature")
    return ModelRequest(
        model=model_of(work),
        system=_system(work, remembered, tools),
        messages=[*remembered.messages, user(said)],
        tools=tools,
        schema=_schema(work),
        max_output_tokens=int(number(most)) or None if most is not None else None,
        temperature=number(temperature) if temperature is not None else None,
        parameters=turn_parameters(given),
    )


def _system(work: NodeAttempt, remembered: MemoryContents, tools: list[ToolSpec]) -> str:
    parts = [work.text("system_prompt", "prompt")]
    if remembered.context:
        parts.append("What you remember:\n" + "\n".join(remembered.context))
    if tools:
        parts.append(
            "Tools you can call:\n" + "\n".join(f"- {one.name}: {one.description}".rstrip(": ") for one in tools)
        )
    return "\n\n".join(part for part in parts if part)


def _schema(work: NodeAttempt) -> dict[str, Any] | None:
    processing = work.spec.configurations.get("output_processing")
    schema = processing.get("output_schema") if isinstance(processing, dict) else None
    return schema if isinstance(schema, dict) and schema else None


def _turns_max(work: NodeAttempt) -> int:
    return max(1, int(work.number("max_tool_iterations", otherwise=TURNS_MAX)))


def _terms(tools: list[tuple[Served, list[ToolSpec]]], own: list[Terms]) -> list[Terms]:
    """Return which calls need approval: what the nodes of the tools say, and what the agent says itself (``own``)."""
    found: list[Terms] = []
    for one, offered in tools:
        for tool in offered:
            given = (terms for terms in read_terms(one.node.given.get(MEMBER)) if terms.cover(*names_of(tool)))
            found += [replace(terms, tools=frozenset({tool.name})) for terms in given]
    return [*found, *own]


async def _open_tools(work: NodeAttempt, stack: AsyncExitStack, tools: list[Served]) -> list[tuple[Served, Toolbox]]:
    """Open the sources of the tools; return those that could be opened."""
    found: list[tuple[Served, Toolbox]] = []
    for one in tools:
        toolbox = work.node.toolbox(one.sources)
        opened = await toolbox.__aenter__()
        if isinstance(opened, Failed):
            await toolbox.__aexit__(None, None, None)
            work.node.warn(UNOPENED, f"the tools of {one.node.id} cannot be had: {opened.error.message}", [one.node.id])
            continue
        stack.push_async_exit(toolbox)
        found.append((one, toolbox))
    return found


class _Tools:
    """The tools of an agent, as its toolboxes have them at the moment."""

    def __init__(self, work: NodeAttempt, opened: list[tuple[Served, Toolbox]]) -> None:
        self._work = work
        self._opened = opened
        self._names = DistinctTools(work.node)
        self._listed: list[list[ToolSpec]] | None = None
        self._offer = Offer([], ConversationLimits(1))

    def offer(self) -> Offer:
        """Return what the model may call now. Of tools with one name, that of the node listed first counts, unless they
        are those of servers."""
        listed = [toolbox.specs for _one, toolbox in self._opened]
        if self._listed is not None and all(map(is_, listed, self._listed)):
            return self._offer
        is_first, self._listed = self._listed is None, listed
        selected = self._select(listed)
        named = iter(self._names.name([tool for tools in selected for tool in tools]))
        offered: dict[str, ToolSpec] = {}
        owned: list[tuple[Served, list[ToolSpec]]] = []
        for (one, _toolbox), tools in zip(self._opened, selected, strict=True):
            mine = [tool for tool in islice(named, len(tools)) if offered.setdefault(tool.name, tool) is tool]
            owned.append((one, [tool for tool in mine if one.has(tool)]))
        self._offer = Offer(list(offered.values()), self._policy(owned, list(offered.values()), warns=is_first))
        return self._offer

    def _select(self, listed: list[list[ToolSpec]]) -> list[list[ToolSpec]]:
        """Return the tools that each node offers. Of nodes with the same server, the one listed first has a tool."""
        selected: list[list[ToolSpec]] = []
        seen: set[tuple[str, str]] = set()
        for (one, _toolbox), specs in zip(self._opened, listed, strict=True):
            url = one.server_url
            tools = [
                tool for tool in one.select_offered(specs) if not tool.own_name or (url, tool.own_name) not in seen
            ]
            seen |= {(url, tool.own_name) for tool in tools}
            selected.append(tools)
        return selected

    def _policy(
        self, owned: list[tuple[Served, list[ToolSpec]]], offered: list[ToolSpec], *, warns: bool
    ) -> ConversationLimits:
        work = self._work
        own = read_terms(work.spec.given.get(MEMBER))
        known = {name for tool in offered for name in names_of(tool)}
        unknown = {name for terms in own for name in terms.tools} - {ANY} - known
        if unknown and warns:
            named = ", ".join(sorted(unknown))
            work.node.warn(UNAPPROVED, f"`approve` names tools that the agent does not have: {named}")
        consent = make_consent(work.stage, _terms(owned, own), f"agent {work.spec.name or work.spec.id}")
        return ConversationLimits(_turns_max(work), last_calls=True, consent=consent)


# -- the outputs -------------------------------------------------------------------------------------------------------


def _warn_of_early_end(work: NodeAttempt, talk: ConversationResult) -> None:
    """Warn of an agent that ended before its model was done; the node continues with the reply so far."""
    if talk.error is None or talk.reply is None:
        return
    left = "the text of its last turn" if talk.reply.text.strip() else "an empty `content`"
    if talk.error.code == "agent.max_turns":
        wanted = ", ".join(sorted({call.tool for call in talk.reply.tool_calls}))
        reason = (
            f"the agent used up its {talk.turns} turns (`max_tool_iterations`) while the model still called {wanted}; "
            f"the calls were made, the model has not seen their results, and the node goes on with {left}"
        )
        work.node.warn(OUT_OF_TURNS, reason, ["content"])
    elif talk.error.code == "agent.cut_short":
        work.node.warn(CUT_SHORT, f"{talk.error.message}; the node goes on with {left}", ["content"])


def _outputs(work: NodeAttempt, talk: ConversationResult, usage: Usage) -> tuple[dict[str, JSON], dict[str, JSON]]:
    """Return the node's payload, and the details of the conversation for its record.

    :raises NodeFailed: if the model's provider failed
    """
    reply, reason = talk.reply, talk.reply.stop_reason if talk.reply else ""
    if talk.error is not None and talk.error.code == "agent.max_turns":
        reason = MAX_ITERATIONS
    elif reply is None or (talk.error is not None and talk.error.code != "agent.cut_short"):
        assert talk.error is not None, "a conversation without a reply has failed"
        raise failed_effect(talk.error)
    assert reply is not None
    model = reply.response_model or model_of(work) or ""
    tokens = {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
    payload: dict[str, JSON] = {
        "content": reply.data if reply.data is not None else _parse_text(reply.text),
        "metadata": {"model": model, "stop_reason": reason, "finish_reason": reason, "iterations": talk.turns},
        "token_usage": tokens,
        "function_calls": [_describe_call(one) for one in talk.calls],
    }
    details: dict[str, JSON] = {
        "ai_model": model,
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "model_response": reply.text,
    }
    return payload, details


def _parse_text(text: str) -> JSON:
    """Return the value of a text that is JSON; return any other text unchanged."""
    try:
        return decode_json(text)
    except JSON_ERRORS:
        return text


def _describe_call(called: Called) -> JSON:
    result = called.output if called.error is None else {"success": False, "error_message": called.error.message}
    return {"id": called.use.id, "name": called.use.tool, "arguments": called.use.input, "result": result}
