"""A turn in words that every provider's API takes: names of tools, questions with choices, schemas asked for in prose.

Pure. What is a provider's own is in its own module.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from callboard.actors.models.model import ModelTurn
from callboard.bus.effects import (
    JSON,
    Choice,
    Failure,
    JsonSchema,
    Message,
    Text,
    ToolOutput,
    ToolUse,
    canonical,
)

TOOL_NAME_CHARS_MAX = 64

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
_FIRST = re.compile(r"[a-zA-Z_]")


class Request(Struct, frozen=True):
    """A request as the SDK takes it; ``tools`` maps the names the API saw back to ours, ``structured`` says whether
    the answer's text is to be read as JSON, ``choices`` are the ids a choice is made from."""

    params: dict[str, Any]
    tools: Mapping[str, str] = field(default_factory=dict[str, str])
    structured: bool = False
    choices: frozenset[str] = frozenset()


def request(turn: ModelTurn, params: dict[str, Any], names: Mapping[str, str]) -> Request:
    """Make a turn's request of its parameters; ``names`` are those of `api_names`."""
    tools = {api: ours for ours, api in names.items()}
    return Request(params, tools, asked_schema(turn) is not None, frozenset(choice.id for choice in turn.choices))


def asked_schema(turn: ModelTurn) -> JsonSchema | None:
    """Return the schema of a turn's answer: its own, or that of a choice; None if it answers in words."""
    return choice_schema(turn.choices) if turn.choices else turn.schema


def system_texts(turn: ModelTurn, *, tell_schema: bool) -> list[str]:
    """Return what stands above a conversation; ``tell_schema``: the API does not enforce it, so the model is asked."""
    texts = [turn.system, choices_text(turn.choices), schema_text(asked_schema(turn)) if tell_schema else ""]
    return [text for text in texts if text.strip()]


def api_names(turn: ModelTurn) -> dict[str, str]:
    """Map our tool names to names the APIs take (``[a-zA-Z_][a-zA-Z0-9_-]{0,63}``), distinct ones to distinct ones."""
    used = [part.tool for message in turn.messages for part in message.parts if isinstance(part, ToolUse)]
    names: dict[str, str] = {}
    taken: set[str] = set()
    # Names that fit as they are come first, so that none of them has to give way.
    for name in sorted(dict.fromkeys([*(spec.name for spec in turn.tools), *used]), key=lambda name: not _fits(name)):
        plain = candidate = _fitting(name)
        count = 1
        while candidate in taken:
            count += 1
            candidate = f"{plain[: TOOL_NAME_CHARS_MAX - len(str(count)) - 1]}_{count}"
        names[name] = candidate
        taken.add(candidate)
    return names


def _fits(name: str) -> bool:
    return _fitting(name) == name


def _fitting(name: str) -> str:
    plain = _NOT_IN_NAMES.sub("_", name)
    return (plain if _FIRST.match(plain) else f"_{plain}")[:TOOL_NAME_CHARS_MAX]


def in_order(message: Message) -> Iterator[Text | ToolUse | ToolOutput]:
    """Yield a message's parts, tools' answers before words, and no empty words: the APIs refuse those.

    :raises ValueError: if a part is not resolved
    """
    for part in sorted(message.parts, key=lambda part: not isinstance(part, ToolOutput)):
        if not isinstance(part, Text | ToolUse | ToolOutput):
            raise ValueError(f"a part of a message is not resolved: {part}")
        if not isinstance(part, Text) or part.text.strip():
            yield part


def told(answer: ToolOutput) -> str:
    """Return a tool's answer as text."""
    if answer.error is not None:
        return error_text(answer.error)
    return answer.output if isinstance(answer.output, str) else canonical(answer.output).decode()


def error_text(error: Failure) -> str:
    """Return a tool's failure as a model is told of it."""
    return f"{error.code}: {error.message}"


def input_of(use: ToolUse) -> dict[str, JSON]:
    """Return the input of a call as the object that it must be."""
    return use.input if isinstance(use.input, dict) else {}


def choice_schema(choices: Sequence[Choice]) -> JsonSchema:
    """Return the schema of an answer that makes a choice."""
    return {
        "type": "object",
        "properties": {"choice": {"type": "string", "enum": [choice.id for choice in choices]}},
        "required": ["choice"],
        "additionalProperties": False,
    }


def choices_text(choices: Sequence[Choice]) -> str:
    """Return the question of a choice; nothing if there is none to make."""
    if not choices:
        return ""
    lines = [f"- {canonical(choice.id).decode()}: {choice.description}" for choice in choices]
    return "\n".join(["Choose exactly one of these and answer with its id as `choice`:", *lines])


def schema_text(schema: JsonSchema | None) -> str:
    """Return the request for an answer of a schema; nothing if there is none."""
    if schema is None:
        return ""
    return (
        "Your final answer must be a single JSON value that conforms to the JSON Schema below, and nothing else: "
        f"no words around it and no code fence.\n{canonical(schema).decode()}"
    )
