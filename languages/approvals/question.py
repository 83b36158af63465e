"""The question whether a tool may be called, and the answers to it.

The data of the question is ``{"kind": "approval", "tool", "arguments", "description"?, "conversation": {"path",
"turn"?}, "usage": {"input_tokens", "output_tokens"}, "to"?}``. ``conversation`` names the node, and the key of the
model turn that requested the call. ``usage`` has what the run has used so far, in all models. An answer is one of the
words in `DECISIONS`, true or false for approve or reject, or an object ``{"decision", "arguments"?, "reason"?}``. The
``arguments`` of an approval replace those of the call; other decisions ignore them.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal, cast

from msgspec import Struct

from callboard.bus.effects import ToolSpec, Usage
from callboard.languages.json_schema import violations
from callboard.languages.language import Ask, Instant
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS
from callboard.lib.json_types import JSON

KIND = "approval"
"""The member ``kind`` of the question's data."""

TYPE = "tool_approval"
"""The type of the question."""

Decision = Literal["approve", "reject", "approve_always", "stop"]

DECISIONS: tuple[Decision, ...] = ("approve", "reject", "approve_always", "stop")

_LABELS: Mapping[Decision, str] = {
    "approve": "Approve",
    "reject": "Reject",
    "approve_always": "Approve {tool} for the rest of the run",
    "stop": "Stop the run",
}

_MEMBERS = ("decision", "arguments", "reason")

_DEFINITIONS = ("$defs", "definitions")
"""The members of a schema that its references lead to, from the root."""


class ProposedCall(Struct, frozen=True):
    """A call that needs a decision.

    ``who`` names the caller for the person who decides, such as ``agent clerk``. ``turn`` is the key of the model turn
    that requested the call; empty if no model did.
    """

    tool: ToolSpec
    arguments: JSON
    who: str
    path: str
    turn: str = ""


class ApprovalAnswer(Struct, frozen=True):
    """A decision. ``arguments`` replace those of the call if ``edited``; ``reason`` may be empty."""

    decision: Decision
    edited: bool = False
    arguments: JSON = None
    reason: str = ""


class Misfit(ValueError):
    """A response is not a decision; the text has all problems, each with its place."""


def make_question(
    call: ProposedCall, usage: Usage, *, to: str, channel: str | None, due: Instant | None, expiry: str
) -> Ask:
    """Return the question of a call. ``expiry`` names what happens at the instant ``due``."""
    data: dict[str, JSON] = {
        "tool": call.tool.name,
        "arguments": call.arguments,
        **({"description": call.tool.description} if call.tool.description else {}),
        "conversation": {"path": call.path, **({"turn": call.turn} if call.turn else {})},
        "usage": {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens},
        "kind": KIND,
    }
    data |= {"to": to} if to else {}
    return Ask(
        question=f"May {call.who} call {call.tool.name}?",
        type=TYPE,
        options=[{"value": one, "label": _LABELS[one].format(tool=call.tool.name)} for one in DECISIONS],
        channel_type=channel,
        request_data=data,
        timeout_at=due,
        timeout_action=expiry if due is not None else None,
        schema=answer_schema(call),
        refuses=partial(refusal, call.tool),
        cancels=partial(cancellation, call.tool),
    )


def answer_schema(call: ProposedCall) -> JSON:
    """Return the JSON Schema of an answer that is an object; its ``arguments`` have the schema of the tool's input."""
    wanted: dict[str, Any] = dict(call.tool.input_schema or {"type": "object"})
    wanted.pop("$schema", None)
    hoisted = {name: wanted.pop(name) for name in _DEFINITIONS if name in wanted}
    wanted |= {"default": call.arguments, "description": "Replaces the arguments of the call, with approve only."}
    return {
        "type": "object",
        "properties": {
            "decision": {"enum": [*DECISIONS]},
            "arguments": wanted,
            "reason": {"type": "string", "description": "The model reads it if the call is rejected."},
        },
        "required": ["decision"],
        "additionalProperties": False,
        **hoisted,
    }


def read_answer(tool: ToolSpec, response: JSON) -> ApprovalAnswer:
    """Read a response: a word, an object, or the JSON text of an object.

    :raises Misfit: if it is not a decision, or its arguments do not fit the schema of the tool's input
    """
    found = _parse(response)
    if not isinstance(found, dict):
        raise Misfit(f"the answer is {found!r:.100}, but must be one of {', '.join(DECISIONS)}, or an object with it")
    members = cast(dict[str, JSON], found)
    problems = [f"{name}: is no member of an answer" for name in members if name not in _MEMBERS]
    decision = _word(members.get("decision"))
    if decision not in DECISIONS:
        said = f"is {members['decision']!r:.100}" if "decision" in members else "is missing"
        problems.append(f"decision: {said}; expected one of {', '.join(DECISIONS)}")
    reason = members.get("reason")
    if not isinstance(reason, str | None):
        problems.append("reason: is not a text")
    arguments = members.get("arguments")
    # Forms repeat members that were not filled in as null.
    if arguments is not None:
        # An object in a text field of a form is its JSON text.
        arguments = _parse_json(arguments)
        if decision in ("reject", "stop"):
            arguments = None
        else:
            problems += [f"arguments.{one}" for one in violations(tool.input_schema, arguments)]
    if problems:
        raise Misfit("; ".join(problems))
    edited = arguments is not None
    return ApprovalAnswer(
        cast(Decision, decision), edited, arguments, (reason if isinstance(reason, str) else "").strip()
    )


def refusal(tool: ToolSpec, response: JSON) -> str | None:
    """Return why a response is not a decision about a call; None if it is one."""
    try:
        read_answer(tool, response)
    except Misfit as misfit:
        return str(misfit)
    return None


def cancellation(tool: ToolSpec, response: JSON) -> str | None:
    """Return the reason for which a response stops the run; None if it does not."""
    answer = read_answer(tool, response)
    if answer.decision != "stop":
        return None
    return answer.reason or f"a person stopped the run instead of allowing the call of {tool.name}"


def _parse(response: JSON) -> JSON:
    """Return the object that a response is, or whose JSON text or decision it is; anything else unchanged."""
    if isinstance(response, bool):
        return {"decision": "approve" if response else "reject"}
    if not isinstance(response, str):
        return response
    if (word := _word(response)) in DECISIONS:
        return {"decision": word}
    found = _parse_json(response)
    return {"decision": "approve" if found else "reject"} if isinstance(found, bool) else found


def _parse_json(value: JSON) -> JSON:
    """Return the value of a text that is JSON, such as that of a form's text field; anything else unchanged."""
    try:
        return decode_json(value) if isinstance(value, str) else value
    except JSON_ERRORS:
        return value


def _word(response: JSON) -> str:
    return response.strip().casefold().replace("-", "_") if isinstance(response, str) else ""
