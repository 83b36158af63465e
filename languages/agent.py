"""The agent loop: a model works with tools until it answers. Pure; it uses `Node.turn` and `Node.tool`.

All languages use this loop. Turn *t* (from 1) has the slot ``turn.<t>``, its *i*-th tool call (from 0) the slot
``tool.<t>.<i>``. A turn refers to the previous turn by its key, and to the tools' answers by the keys under which the
log holds them, so content is stored once.
"""

import sys
from collections.abc import Callable, Collection
from typing import Any, Protocol, cast

from msgspec import Struct, field
from msgspec.structs import replace

from callboard.bus.effects import Failure, Message, ModelReply, ModelRequest, ToolOutput, ToolSpec, ToolUse, Usage
from callboard.bus.work import TurnWork
from callboard.languages.computation import compute
from callboard.languages.json_schema import violations
from callboard.languages.language import Failed, Node, Ok, Stage, Unwound
from callboard.languages.nesting_depth import VALUE_DEPTH_MAX, nests_deeper
from callboard.languages.patience import patient_turn
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS
from callboard.lib.json_types import JSON
from callboard.lib.step_limits import Steps

CUT_SHORT = frozenset(
    {
        *("max_tokens", "max_output_tokens", "length", "model_context_window_exceeded"),
        *("refusal", "content_filter", "safety"),
    }
)
"""Stop reasons of a model that ended before it was done."""


class _MeteredNode:
    def __init__(self, node: Node, spend: Callable[[Usage], None]) -> None:
        self._node = node
        self._spend = spend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    async def turn(self, slot: str, request: ModelRequest, *, work: TurnWork | None = None) -> Ok[ModelReply] | Failed:
        outcome = await self._node.turn(slot, request, work=work)
        if isinstance(outcome, Ok):
            self._spend(outcome.value.usage)
        return outcome


def meter_node(node: Node, spend: Callable[[Usage], None]) -> Node:
    """Return a node that passes the usage of its turns to ``spend``, and otherwise behaves like the node."""
    return cast(Node, _MeteredNode(node, spend))


class Refusal(Struct, frozen=True):
    """A call that must not be made. With ``final`` the conversation fails; otherwise the model reads the error."""

    error: Failure
    final: bool = False


class Consent(Protocol):
    """Decides about tool calls before they are made."""

    async def __call__(self, node: Node, slot: str, use: ToolUse, tool: ToolSpec, turn: str) -> Ok[JSON] | Refusal:
        """Return the arguments with which a call may be made.

        ``slot`` is that of the call, ``turn`` the key of the model turn that requested it.
        """
        ...


class ConversationLimits(Struct, frozen=True):
    """The bounds of one conversation.

    ``turns_max`` counts model turns, with and without tool calls. The input of the tools named in ``check_inputs`` is
    validated here against the offered schema; all other tools validate their input themselves. With ``last_calls``, the
    tool calls of the last turn are made although no turn reads their answers. ``consent`` decides about each call
    before it is made.
    """

    turns_max: int
    check_inputs: Collection[str] = ()
    last_calls: bool = False
    consent: Consent | None = None


class Offer(Struct, frozen=True):
    """The tools that a model may call, and the policy for their calls."""

    tools: list[ToolSpec]
    policy: ConversationLimits


Renew = Callable[[], Offer]
"""Returns what the model may call now: a server may change its tools with any call."""


class Called(Struct, frozen=True):
    """A tool call that a model requested, and its result. ``key`` is empty if the call was refused before it began.

    ``use`` has the arguments of the call that was made, which a person may have edited. With ``final`` the error ends
    the conversation.
    """

    use: ToolUse
    key: str = ""
    output: JSON = None
    error: Failure | None = None
    final: bool = False

    def to_output(self) -> ToolOutput:
        """Return the answer as a part of the next turn's request."""
        return ToolOutput(self.use.id, of=self.key) if self.key else ToolOutput(self.use.id, error=self.error)


class ConversationResult(Struct, frozen=True):
    """The result of a conversation: its last reply, if there was any, and the ``error`` that ended it early.

    Codes of ``error``: those of a failed turn (``model.…``), ``agent.max_turns``, ``agent.cut_short``,
    ``approval.expired``.
    """

    reply: ModelReply | None = None
    calls: list[Called] = field(default_factory=list[Called])
    turns: int = 0
    error: Failure | None = None


async def converse(
    stage: Stage, node: Node, request: ModelRequest, policy: ConversationLimits, renew: Renew | None = None
) -> ConversationResult:
    """Let a model work with tools until it answers, fails, or has used up its turns.

    The tool calls of one turn run concurrently. Those of the last turn are made only with ``policy.last_calls``,
    because no turn reads their answers. If ``renew`` returns other tools after the calls of a turn, the next turn has
    these.
    """
    said = ConversationResult()
    tools = request.tools
    for turn in range(1, policy.turns_max + 1):
        slot, outcome = await patient_turn(node, f"turn.{turn}", request)
        said = replace(said, turns=turn)
        if isinstance(outcome, Failed):
            return replace(said, error=outcome.error)
        reply = outcome.value
        said = replace(said, reply=reply)
        if reply.stop_reason in CUT_SHORT:
            message = f"the model ended early: {reply.stop_reason}"
            return replace(said, error=Failure("agent.cut_short", message, details={"stop_reason": reply.stop_reason}))
        if not reply.tool_calls:
            return said
        if turn == policy.turns_max and not policy.last_calls:
            break
        offered = {tool.name: tool for tool in tools}
        made = await _call_all(stage, node, turn, reply.tool_calls, offered, policy, node.key(slot))
        said = replace(said, calls=[*said.calls, *made])
        if (final := next((call.error for call in made if call.final), None)) is not None:
            return replace(said, error=final)
        if turn == policy.turns_max:
            break
        told = Message("user", [call.to_output() for call in made])
        before = tools
        if renew is not None:
            offer = renew()
            tools, policy = offer.tools, offer.policy
        retooled = tools != before
        request = ModelRequest(
            purpose=request.purpose,
            model=request.model,
            base=node.key(slot),
            messages=[told],
            max_output_tokens=request.max_output_tokens,
            temperature=request.temperature,
            parameters=request.parameters,
            tools=tools if retooled else [],
            retooled=retooled,
        )
    return replace(said, error=_out_of_turns(policy.turns_max, said.reply))


def _out_of_turns(turns_max: int, reply: ModelReply | None) -> Failure:
    wanted = sorted({call.tool for call in reply.tool_calls}) if reply else []
    message = f"the turn limit of {turns_max} was reached while the model still wanted to call {', '.join(wanted)}"
    return Failure("agent.max_turns", message, details={"max_turns": turns_max, "wanted": wanted})


async def _call_all(
    stage: Stage,
    node: Node,
    turn: int,
    uses: list[ToolUse],
    offered: dict[str, ToolSpec],
    policy: ConversationLimits,
    requested: str,
) -> list[Called]:
    tasks = [
        stage.spawn(_call(stage, node, f"tool.{turn}.{i}", use, offered, policy, requested))
        for i, use in enumerate(uses)
    ]
    made: list[Called] = []
    for use, settled in zip(uses, await stage.join(*tasks), strict=True):
        match settled:
            case Ok(called):
                made.append(called)
            case Unwound(cause):
                made.append(Called(use, error=cause))
    return made


async def _call(
    stage: Stage,
    node: Node,
    slot: str,
    use: ToolUse,
    offered: dict[str, ToolSpec],
    policy: ConversationLimits,
    requested: str,
) -> Called:
    """Make a tool call. If it cannot be made, emit a warning, because no event shows the call.

    ``requested`` is the key of the turn that requested it.
    """
    spec = offered.get(use.tool)
    if spec is None:
        known = ", ".join(offered) or "none"
        node.warn("UNKNOWN_TOOL", f"the model wants {use.tool!r}, which the node does not have; it has: {known}")
        return Called(use, error=Failure("tool.unknown", f"there is no tool {use.tool!r} here; there are: {known}"))
    if use.fault:
        node.warn(
            "INVALID_TOOL_INPUT", f"what the model gives {use.tool!r} cannot be read; it is not called: {use.fault}"
        )
        return Called(use, error=Failure("tool.invalid_input", use.fault))
    checked = use.tool in policy.check_inputs
    faults = await compute(stage, lambda: violations(spec.input_schema, use.input)) if checked else []
    if faults:
        told = "; ".join(faults)
        node.warn("INVALID_TOOL_INPUT", f"what the model gives {use.tool!r} does not fit; it is not called: {told}")
        return Called(use, error=Failure("tool.invalid_input", told))
    if policy.consent is not None:
        match await policy.consent(node, slot, use, spec, requested):
            case Ok(arguments):
                use = replace(use, input=arguments)
            case Refusal(error, final):
                return Called(use, error=error, final=final)
    server = spec.server if spec.own_name else ""
    match await node.tool(slot, use.tool, use.input, id=use.id, server=server, own_name=spec.own_name):
        case Ok(output):
            return Called(use, node.key(slot), output=output)
        case Failed(error):
            return Called(use, node.key(slot), error=error)


def read_structured_answer(reply: ModelReply, *, asked: bool) -> JSON:
    """Return the structured answer in a reply, or None.

    This is the data that the provider delivered; otherwise the JSON value that the text, or its last fenced block,
    consists of. If no schema was ``asked`` for, only an object counts.
    """
    if reply.data is not None:
        return reply.data
    found = find_json(reply.text)
    return found if asked or isinstance(found, dict) else None


def find_json(text: str) -> JSON:
    """Return the JSON value that a text, or its last fenced block, consists of.

    None if neither is JSON, or if the value nests deeper than `VALUE_DEPTH_MAX`.
    """
    for candidate in (text.strip(), _last_block(text)):
        if candidate:
            try:
                found = decode_json(candidate)
            except JSON_ERRORS:
                continue
            return None if nests_deeper(found, VALUE_DEPTH_MAX, Steps(sys.maxsize)) else found
    return None


def is_json(text: str) -> bool:
    """Return whether a text is JSON and nothing else."""
    try:
        decode_json(text)
    except JSON_ERRORS:
        return False
    return True


def _last_block(text: str) -> str:
    blocks = text.split("```")[1::2]
    if not blocks:
        return ""
    first_line, _newline, rest = blocks[-1].partition("\n")
    return rest.strip() if first_line.strip().isalnum() else blocks[-1].strip()
