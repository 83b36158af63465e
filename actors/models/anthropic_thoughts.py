"""Claude's thinking before a tool call, as the text that is recorded with the call in the log. Pure.

A model that thinks needs its thinking back with the tools' answers, unchanged, block by block and each at its place
(see "Preserving thinking blocks" and "Preserved thinking" at platform.claude.com). So the text is a JSON array of
everything since the previous call: a block of thinking as it is, and for a stretch of text, which the log has anyway,
its number of characters.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct, field

from callboard.bus.effects import ToolUse
from callboard.lib.canonical_json import canonical
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_types import JSON

KINDS: Mapping[str, Sequence[str]] = {"thinking": ("thinking", "signature"), "redacted_thinking": ("data",)}
"""Types of blocks that hold thinking, with their members, which are all texts."""


class Thought(Struct):
    """An unfinished block of thinking."""

    kind: str
    pieces: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def add(self, member: str, piece: str) -> None:
        self.pieces.setdefault(member, []).append(piece)

    def block(self) -> dict[str, JSON]:
        """Return the block as the API sent it, and requires it again."""
        return {"type": self.kind, **{name: "".join(self.pieces.get(name, [])) for name in KINDS[self.kind]}}


def begun(block: Mapping[str, JSON]) -> Thought | None:
    """Return the thought that an opening block begins; None if the block does not hold thinking."""
    kind = block.get("type")
    if not isinstance(kind, str) or kind not in KINDS:
        return None
    thought = Thought(kind)
    for name in KINDS[kind]:
        if isinstance(piece := block.get(name), str):
            thought.add(name, piece)
    return thought


def seal_thoughts(since: Sequence[Thought | int]) -> str:
    """Return the recorded form of everything since the last call; empty if there was no thinking."""
    if not any(isinstance(one, Thought) for one in since):
        return ""
    return canonical([one.block() if isinstance(one, Thought) else one for one in since]).decode()


def told_again(use: ToolUse, text: str) -> list[dict[str, Any]]:
    """Return the blocks that precede a call: the text up to it, and its thoughts at their places.

    Items that are not Claude's thoughts are skipped.
    """
    blocks: list[dict[str, Any]] = []
    for one in _items(use.thought):
        match one:
            case int(length) if length > 0:
                blocks.append({"type": "text", "text": text[:length]})
                text = text[length:]
            case {"type": "thinking", "thinking": str(), "signature": str()} | {
                "type": "redacted_thinking",
                "data": str(),
            }:
                blocks.append(one)
            case _:
                continue
    blocks.append({"type": "text", "text": text})
    # The API refuses empty texts.
    return [block for block in blocks if block["type"] != "text" or block["text"].strip()]


def _items(thought: str) -> list[Any]:
    try:
        items = decode_json(thought) if thought else []
    except msgspec.DecodeError:
        return []
    return items if isinstance(items, list) else []
