"""The JSON Schema of a script, for editors: the format that `callboard.actors.models.script` checks."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from callboard.actors.models.script import DELAY_MS_MAX
from callboard.bus.effects import Usage

_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}
_USAGE = {field.name: _COUNT for field in msgspec.structs.fields(Usage)}


def script_schema() -> dict[str, Any]:
    """Return the schema, in draft 2020-12."""
    turn = _entry(
        {"text": _TEXT, "data": True, "tool_calls": {"type": "array", "minItems": 1, "items": _CALL}},
        {"error": _error(data=True), "stop_reason": _TEXT, **_MANNERS},
    )
    answer = _entry({"text": _TEXT}, {"error": _error(), **_MANNERS})
    verdict = _entry({"verdict": _TEXT, "text": _TEXT}, {"error": _error(), "reasoning": _TEXT, **_MANNERS})
    verdict["not"] = {"required": ["verdict", "text"]}
    tool = _entry({"output": True}, {"error": _TEXT})
    return {
        "title": "A script",
        "description": "What stands in for models and tools answers, by node or tool, in turn.",
        "type": "object",
        "properties": {
            "turns": _lists(turn, "Turns of models by node: text, data, tool calls, or an error."),
            "routes": _lists({"anyOf": [_TEXT, answer]}, "The way chosen from a node."),
            "judges": _lists({"anyOf": [_TEXT, verdict]}, "Verdicts of evaluators by node."),
            "asks": _lists({"anyOf": [_TEXT, answer]}, "Other answers of models by what asks."),
            "tools": _lists(tool, "Results of tools by name."),
            "default": turn,
        },
        "additionalProperties": False,
    }


def _object(properties: Mapping[str, Any], required: Sequence[str] = ()) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


def _lists(entry: dict[str, Any], about: str) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": {"type": "array", "items": entry}, "description": about}


def _entry(answers: Mapping[str, Any], besides: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an entry that either answers or fails."""
    given = [{"required": [name]} for name in answers]
    either = [{"required": ["error"], "not": {"anyOf": given}}, {"anyOf": given, "not": {"required": ["error"]}}]
    return {**_object({**answers, **besides}), "anyOf": either}


def _error(*, data: bool = False) -> dict[str, Any]:
    code = {"type": "string", "pattern": "^[a-z][a-z0-9_]*$"}
    members = {"code": code, "message": _TEXT, "retry_after_s": _COUNT, **({"data": True} if data else {})}
    return {"anyOf": [code, _object(members, ["code"])]}


_CALL = _object({"tool": {"type": "string", "minLength": 1}, "input": True}, ["tool"])

_MANNERS = {
    "progress": {"type": "array", "items": _TEXT},
    "delay_ms": {**_COUNT, "maximum": DELAY_MS_MAX},
    "usage": _object(_USAGE),
}
