"""The parts of a request that all providers share: names of tools, questions with choices, schemas in words.

Pure. Parts that differ between providers are in the providers' modules.

Each provider names its calls in its own way, some do not name them at all, and some use a name again in every turn. The
log keeps the provider's name where it gave one. A request replaces names that another provider would refuse, in the
call and in its answer.
"""

import re
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from callboard.actors.models.model import ModelTurn
from callboard.bus.effects import Choice, Failure, Message, Part, Text, ToolOutput, ToolUse
from callboard.bus.model_names import TEMPERATURE
from callboard.lib.canonical_json import canonical, digest
from callboard.lib.json_types import JSON, JsonSchema

TOOL_NAME_CHARS_MAX = 64

ATTACHED = "attachments"
"""The part of a request that can be omitted: what the provider attached to earlier messages and calls."""

SIGNATURES = "signatures"
"""The signatures of calls that another model made: a request without them has `SUBSTITUTE` in their place."""

SUBSTITUTE = "skip_thought_signature_validator"
"""What newer models of Gemini accept as the signature of a call that they did not make themselves."""

Parameters = Mapping[str, str]


def _named_alike(*names: str) -> Parameters:
    return {name: name for name in names}


ANTHROPIC_PARAMETERS = _named_alike("temperature", "top_p", "top_k", "stop_sequences")
"""The SDK knows only the last one: the newest models of Anthropic accept no others, while older ones, and servers with
a compatible API, do."""

OPENAI_PARAMETERS = _named_alike("temperature", "top_p")
"""Those of the Responses API."""

OPENAI_CHAT_PARAMETERS: Parameters = {
    **_named_alike("temperature", "top_p", "frequency_penalty", "presence_penalty", "seed", "top_k"),
    "stop_sequences": "stop",
}
"""``top_k`` exists on other servers only."""

GEMINI_PARAMETERS = _named_alike(
    *("temperature", "top_p", "top_k", "frequency_penalty", "presence_penalty", "stop_sequences", "seed"),
    "safety_settings",
)

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
_FIRST = re.compile(r"[a-zA-Z_]")


class SdkRequest(Struct, frozen=True):
    """A request for the SDK. ``tools`` maps the names in the request back to ours; ``structured``: the text of the
    answer is read as JSON, ``array``: as an array; ``choices`` are the ids of a choice. ``mark`` distinguishes the
    calls of this turn from those of others, if they need an id. ``attached``: the conversation has attachments."""

    params: dict[str, Any]
    attached: bool = False
    tools: Mapping[str, str] = field(default_factory=dict[str, str])
    structured: bool = False
    choices: frozenset[str] = frozenset()
    array: bool = False
    mark: str = ""


def request(turn: ModelTurn, params: dict[str, Any], names: Mapping[str, str]) -> SdkRequest:
    """Return a turn's request with its parameters; ``names`` are those of `api_names`."""
    schema = asked_schema(turn)
    return SdkRequest(
        params,
        attached=any(message.thought or any(_has_thought(part) for part in message.parts) for message in turn.messages),
        tools={api: ours for ours, api in names.items()},
        structured=schema is not None,
        choices=frozenset(choice.id for choice in turn.choices),
        array=schema is not None and schema.get("type") == "array",
        mark=f"{digest(turn.key)[:8]}-",
    )


def _has_thought(part: object) -> bool:
    return isinstance(part, ToolUse) and bool(part.thought)


def passed_on(turn: ModelTurn, known: Mapping[str, str], without: Collection[str] = ()) -> dict[str, Any]:
    """Return the parameters of a turn that an API has, under their names there, except those that it refused."""
    given = {**turn.parameters, TEMPERATURE: turn.temperature}
    own = {known[name]: given[name] for name in known if given.get(name) is not None}
    return {name: value for name, value in own.items() if name not in without}


def sent(request: SdkRequest) -> set[str]:
    """Return the names of all parameters of a request, and `ATTACHED` if it has attachments."""
    attached = {ATTACHED} if request.attached else set[str]()
    return attached.union(request.params, request.params.get("extra_body", {}), request.params.get("config", {}))


def asked_schema(turn: ModelTurn) -> JsonSchema | None:
    """Return the schema of a turn's answer: its own, or that of a choice; None if the answer is text."""
    return choice_schema(turn.choices) if turn.choices else turn.schema


def system_texts(turn: ModelTurn, *, tell_schema: bool) -> list[str]:
    """Return the system texts of a conversation; ``tell_schema``: a text asks for the schema."""
    texts = [turn.system, choices_text(turn.choices), schema_text(asked_schema(turn)) if tell_schema else ""]
    return [text for text in texts if text.strip()]


def api_names(turn: ModelTurn) -> dict[str, str]:
    """Map our tool names to names that the APIs accept (``[a-zA-Z_][a-zA-Z0-9_-]{0,63}``), without collisions."""
    used = [part.tool for message in turn.messages for part in message.parts if isinstance(part, ToolUse)]
    names: dict[str, str] = {}
    taken: set[str] = set()
    # Names that fit unchanged come first, so that none of them has to be changed.
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
    """Yield a message's parts: tools' answers before texts, consecutive texts as one text, and no empty texts, which
    the APIs refuse.

    :raises ValueError: if a part is not resolved
    """
    texts: list[str] = []
    for part in sorted(message.parts, key=lambda part: not isinstance(part, ToolOutput)):
        if isinstance(part, Text):
            texts.append(part.text)
            continue
        if not isinstance(part, ToolUse | ToolOutput):
            raise ValueError(f"a part of a message is not resolved: {part}")
        yield from _one_text(texts)
        texts = []
        yield part
    yield from _one_text(texts)


def _one_text(texts: Sequence[str]) -> Iterator[Text]:
    """Yield texts as one, without blank ones at its ends; none if all are blank."""
    said = [number for number, text in enumerate(texts) if text.strip()]
    if said:
        yield Text("".join(texts[said[0] : said[-1] + 1]))


def tool_answer_text(answer: ToolOutput) -> str:
    """Return a tool's answer as text."""
    if answer.error is not None:
        return error_text(answer.error)
    return answer.output if isinstance(answer.output, str) else canonical(answer.output).decode()


def error_text(error: Failure) -> str:
    """Return a tool's failure as the text for a model."""
    return f"{error.code}: {error.message}"


def input_of(use: ToolUse) -> dict[str, JSON]:
    """Return the input of a call, which must be an object."""
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
    """Return the question of a choice; empty without choices."""
    if not choices:
        return ""
    lines = [f"- {canonical(choice.id).decode()}: {choice.description}" for choice in choices]
    return "\n".join(["Choose exactly one of these and answer with its id as `choice`:", *lines])


def schema_text(schema: JsonSchema | None) -> str:
    """Return the request for an answer that fits a schema; empty without a schema."""
    if schema is None:
        return ""
    return (
        "Your final answer must be a single JSON value that conforms to the JSON Schema below, and nothing else: "
        f"no words around it and no code fence.\n{canonical(schema).decode()}"
    )


UNNAMED = "unnamed-"
"""The prefix of ids given by Callboard, because the provider gave none or gave one twice."""

_FIT = re.compile(r"[a-zA-Z0-9_-]{1,40}")
"""Ids that every API takes."""


def fresh_ids(ids: Sequence[str], mark: str) -> list[str]:
    """Return unique ids for the calls of one answer; ``mark`` is part of new ids, and differs in each turn."""
    fresh: list[str] = []
    for number, id in enumerate(ids):
        fresh.append(id if id and id not in fresh else f"{UNNAMED}{mark}{number}")
    return fresh


def with_fit_ids(messages: Sequence[Message]) -> list[Message]:
    """Return a conversation whose calls have unique ids that every provider accepts, with the same ids in answers."""
    taken: set[str] = set()
    open_calls: dict[str, deque[str]] = {}
    told: list[Message] = []
    for message in messages:
        calls = [part.id for part in message.parts if isinstance(part, ToolUse)]
        if calls:
            open_calls = {}
        fit = deque(_fit(id, taken) for id in calls)
        for id, own in zip(calls, fit, strict=True):
            open_calls.setdefault(id, deque()).append(own)
        told.append(replace(message, parts=[_rename_ids(part, fit, open_calls) for part in message.parts]))
    return told


def _fit(id: str, taken: set[str]) -> str:
    fit, number = id, len(taken)
    while not _FIT.fullmatch(fit) or fit in taken:
        # Nine letters and digits: the form that the strictest provider requires.
        number += 1
        fit = f"{UNNAMED}{number}" if id.startswith(UNNAMED) else f"call{number:05d}"
    taken.add(fit)
    return fit


def _rename_ids(part: Part, fit: deque[str], open_calls: dict[str, deque[str]]) -> Part:
    match part:
        case ToolUse():
            return replace(part, id=fit.popleft())
        case ToolOutput() if waiting := open_calls.get(part.id):
            return replace(part, id=waiting.popleft() if len(waiting) > 1 else waiting[0])
        case _:
            return part
