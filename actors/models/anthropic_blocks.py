"""Blocks of a message of Claude that are neither text nor a call, as they are recorded and sent back. Pure.

A model that thinks needs its thinking back with the tools' answers, unchanged, block by block and each at its place
(see "Preserving thinking blocks" and "Preserved thinking" at platform.claude.com). The same holds for calls of the
provider's own tools and their results, for citations of a text, and for further members of a call.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct, field

from callboard.actors.models.attachments import Attached, Placed, seal, unseal
from callboard.bus.effects import Text
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
