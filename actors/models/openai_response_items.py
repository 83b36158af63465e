"""The items of a response of OpenAI's Responses API, as they are recorded and sent back. Pure.

The provider stores nothing (``store`` is false), so it needs its thinking back with the tools' answers, encrypted; the
``phase`` of each message; and the items of the tools that it runs itself.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from callboard.actors.models.attachments import seal, unseal
from callboard.actors.models.draft import PARTS_BETWEEN, DraftCall
from callboard.lib.json_types import JSON

API = "openai"

COMMENTARY = "commentary"
"""The phase of a message that is not the answer."""

_OF_CALL = frozenset({"type", "id", "call_id", "name", "arguments", "status"})


class MessageItem(Struct):
    """A message: its pieces and its phase, if it has one. One that is ``aside`` is not part of the answer."""

    pieces: list[str] = field(default_factory=list[str])
    phase: str = ""
    aside: bool = False

    @property
    def text(self) -> str:
        return "".join(self.pieces)


Item = MessageItem | DraftCall | dict[str, Any]
"""An item of a response; a mapping is one that is sent back as it is."""


def kept(item: Mapping[str, JSON]) -> dict[str, Any] | None:
    """Return an item, neither message nor call, as it is sent back; None if the provider could not read it."""
    match item:
        case {"type": "reasoning"}:
            if not _is_thinking(item):
                return None
            sealed = {name: item.get(name) for name in ("type", "id", "encrypted_content", "content")}
            return {name: value for name, value in sealed.items() if value} | {"summary": []}
        case {"type": "image_generation_call"}:
            return None
        case {"type": str()}:
            return {name: value for name, value in item.items() if value is not None}
        case _:
            return None


def _is_thinking(item: object) -> bool:
    """Return whether an item is complete thinking: encrypted, or in words, so that the provider need not store it."""
    match item:
        case {"type": "reasoning", "id": str(), "encrypted_content": str()}:
            return True
        case {"type": "reasoning", "id": str(), "content": [_, *_]}:
            return True
        case _:
            return False


def parts_of(thought: str) -> list[Any]:
    """Return the parts of a recorded text."""
    return unseal(API, thought)


def more_of_call(item: Mapping[str, JSON]) -> dict[str, Any]:
    """Return the members of a call that are sent back besides those that are recorded as such."""
    return {name: value for name, value in item.items() if name not in _OF_CALL and value is not None}


def attach(items: Sequence[Item], more: Mapping[int, Mapping[str, Any]]) -> str:
    """Record with each call what precedes it and its further members (by its number); return what follows the last."""
    since: list[JSON] = []
    calls, has_text = 0, False
    for item in items:
        match item:
            case DraftCall():
                own = more.get(calls)
                item.thought = seal(API, [*since, {"type": "function_call", **own}] if own else since)
                since, calls = [], calls + 1
            case MessageItem(aside=True):
                since.append({"type": "message", "phase": item.phase, "text": item.text})
            case MessageItem():
                chars = len(item.text)
                if chars and has_text:
                    since.append(len(PARTS_BETWEEN))
                if chars:
                    since.append({"type": "message", "phase": item.phase, "chars": chars} if item.phase else chars)
                has_text = has_text or chars > 0
            case _:
                since.append(item)
    return seal(API, since)
