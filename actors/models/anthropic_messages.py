"""Anthropic's Messages API without its socket: converts a turn to a request, and the blocks of a message to records.

Pure. The API is version 2026-10-21, described at platform.claude.com under "Messages". A model that thinks needs its
thinking back with the tools' answers, unchanged, block by block and each at its place ("Preserving thinking blocks").
The same holds for calls of the provider's own tools and their results, for citations of a text, and for further members
of a call.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct, field

from callboard.actors.models.attachments import Attached, Placed, in_place, seal, unseal
from callboard.actors.models.model import ModelTurn
from callboard.actors.models.request_parts import (
    ANTHROPIC_PARAMETERS,
    ATTACHED,
    SdkRequest,
    api_names,
    asked_schema,
    input_of,
    passed_on,
    request,
    system_texts,
    tool_answer_text,
    with_fit_ids,
)
from callboard.actors.models.schemas import ANTHROPIC, native_schema, with_object_schema
from callboard.bus.effects import Message, Text, ToolOutput, ToolSpec, ToolUse
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_types import JSON

API = "anthropic"

THINKING: Mapping[str, Sequence[str]] = {"thinking": ("thinking", "signature"), "redacted_thinking": ("data",)}
"""Types of blocks that hold thinking, with their members, which are all texts."""

_CALL = ("type", "id", "name", "input")
"""The members of a call that are recorded as such."""


class Block(Struct):
    """An unfinished block other than text and calls: its members, and the pieces of its input."""

    members: dict[str, Any]
    pieces: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    @property
    def is_thinking(self) -> bool:
        return self.members["type"] in THINKING

    def add(self, delta: Mapping[str, JSON]) -> int:
        """Add a delta; return the number of its characters. A text is appended to the text of the same name."""
        chars = 0
        for name, piece in delta.items():
            if name == "type" or piece is None:
                continue
            if isinstance(piece, str):
                self.pieces.setdefault(name, []).append(piece)
                chars += len(piece)
            else:
                self.members[name] = piece
        return chars

    def part(self) -> JSON:
        """Return the block as the API sent it, and requires it again.

        :raises ValueError: if its input is not JSON
        """
        texts = {name: "".join(pieces) for name, pieces in self.pieces.items()}
        raw = texts.pop("partial_json", "")
        before = {name: text for name in texts if isinstance(text := self.members.get(name), str)}
        members = {**self.members, **{name: before.get(name, "") + text for name, text in texts.items()}}
        try:
            return {**members, "input": decode_json(raw)} if raw.strip() else members
        except msgspec.DecodeError as error:
            raise ValueError(f"the input of a block {self.members['type']} is not JSON: {error}") from error


class TextBlock(Struct):
    """A block of text: its pieces, and what it cites. One that is ``aside`` is not part of the answer."""

    pieces: list[str] = field(default_factory=list[str])
    citations: list[JSON] = field(default_factory=list[JSON])
    aside: bool = False

    def part(self) -> JSON:
        text = "".join(self.pieces)
        cited = {"citations": self.citations} if self.citations else {}
        if self.aside:
            return {"type": "text", "text": text, **cited}
        return {"type": "text", "chars": len(text), **cited} if cited else len(text)


def open_block(block: Mapping[str, JSON]) -> Block:
    """Return the block that an opening block begins."""
    members = {name: value for name, value in block.items() if value is not None}
    kind = block.get("type")
    texts = THINKING.get(kind, ()) if isinstance(kind, str) else ()
    return Block({**members, **{name: value if isinstance(value := block.get(name), str) else "" for name in texts}})


def seal_blocks(blocks: Sequence[Block | TextBlock], call: Mapping[str, JSON] | None = None) -> str:
    """Return the recorded form of the blocks before a call, or at the end of a message.

    :raises ValueError: if a block cannot be read
    """
    parts: list[Any] = []
    for part in (one.part() for one in blocks):
        if isinstance(part, int) and parts and isinstance(parts[-1], int):
            parts[-1] += part
        elif part != 0:
            parts.append(part)
    more = {name: value for name, value in (call or {}).items() if name not in _CALL and value is not None}
    return seal(API, [*parts, {"type": "tool_use", **more}] if more else parts)


def parts_of(thought: str) -> list[Any]:
    """Return the parts of a recorded text."""
    return unseal(API, thought)


def with_blocks(placed: Iterator[Placed]) -> Iterator[tuple[Placed, dict[str, Any]]]:
    """Yield the parts of a message, with members that are added to its block. The API refuses empty texts."""
    more: dict[str, Any] = {}
    for part in placed:
        match part:
            case Text(text) if not text.strip():
                continue
            case Attached({"type": "tool_use", **members}):
                more = members
            case Attached({"type": "text", **members}, text):
                said = Text(text or members.get("text") or "")
                cited = {name: value for name, value in members.items() if name != "text"}
                if said.text.strip():
                    yield said, cited
            case Attached():
                yield part, {}
            case _:
                yield part, more
                more = {}


OUTPUT_TOKENS = 16_384
"""Output tokens of a turn that sets no limit; the model's thinking counts among them."""

SCHEMA = "output_config"
"""The parameter with the schema of an answer."""

DISPENSABLE = frozenset({*ANTHROPIC_PARAMETERS.values(), SCHEMA})
"""Parameters that some models and servers refuse: a refused one is omitted."""

_CACHE = {"type": "ephemeral"}


def build_request(turn: ModelTurn, without: Collection[str] = ()) -> SdkRequest:
    """Convert a turn to a request, ``without`` the parameters that the model refused.

    A schema is enforced by the API's structured output if that can express it; otherwise the model is asked in words
    and the answer is read leniently. A forced tool, the older way to any schema, is refused with status 400 by Claude
    Sonnet 5.5 and its generation.

    :raises ValueError: if a part of a message is not resolved
    """
    native = None if SCHEMA in without else native_schema(asked_schema(turn), ANTHROPIC)
    names = api_names(turn)
    params: dict[str, Any] = {
        "model": turn.model,
        "max_tokens": turn.max_output_tokens or OUTPUT_TOKENS,
        "messages": _messages(with_fit_ids(turn.messages), names, attached=ATTACHED not in without),
    }
    if blocks := [{"type": "text", "text": text} for text in system_texts(turn, tell_schema=native is None)]:
        params["system"] = _mark_cached(blocks)
    if turn.tools:
        params["tools"] = _mark_cached([_tool(spec, names) for spec in turn.tools])
    if native is not None:
        params["output_config"] = {"format": {"type": "json_schema", "schema": native}}
    if params["messages"] and (turn.tools or len(turn.messages) > 1):
        # A conversation that continues, or is likely to: the next turn reads this one from the cache.
        last = params["messages"][-1]
        last["content"] = _mark_cached(last["content"])
    if own := passed_on(turn, ANTHROPIC_PARAMETERS, without):
        params["extra_body"] = own
    return request(turn, params, names)


def _mark_cached(blocks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mark the last block, so that everything up to it is kept in the provider's cache. Thinking cannot be marked."""
    last = max((at for at, block in enumerate(blocks) if block.get("type") not in THINKING), default=None)
    return [{**block, "cache_control": _CACHE} if at == last else block for at, block in enumerate(blocks)]


def _tool(spec: ToolSpec, names: Mapping[str, str]) -> dict[str, Any]:
    shaped = with_object_schema(spec)
    tool: dict[str, Any] = {"name": names[spec.name], "input_schema": shaped.input_schema}
    if shaped.description:
        tool["description"] = shaped.description
    return tool


def _messages(messages: Sequence[Message], names: Mapping[str, str], *, attached: bool) -> list[dict[str, Any]]:
    """Return the messages with content; the API refuses empty ones."""
    shaped = [(message.role, _content(message, names, attached=attached)) for message in messages]
    return [{"role": role, "content": content} for role, content in shaped if not THINKING.keys() >= _types(content)]


def _types(content: Sequence[Mapping[str, Any]]) -> set[str]:
    return {block.get("type", "") for block in content}


def _content(message: Message, names: Mapping[str, str], *, attached: bool) -> list[dict[str, Any]]:
    placed = in_place(message, parts_of if attached else lambda _thought: [])
    return [{**_block(part, names), **more} for part, more in with_blocks(placed)]


def _block(part: Placed, names: Mapping[str, str]) -> dict[str, Any]:
    match part:
        case Attached(members):
            return members
        case Text(text):
            return {"type": "text", "text": text}
        case ToolUse(id, tool):
            return {"type": "tool_use", "id": id, "name": names[tool], "input": input_of(part)}
        case ToolOutput(id=id, error=None):
            return {"type": "tool_result", "tool_use_id": id, "content": tool_answer_text(part)}
        case ToolOutput(id=id):
            return {"type": "tool_result", "tool_use_id": id, "content": tool_answer_text(part), "is_error": True}
