"""Attachments: data that a provider adds to a message or a call, and that the next request must contain. Pure.

Examples are signed or encrypted thinking, the phase of a message, and results of the provider's own tools. They are
recorded with the turn as one text (``thought``), a JSON object with the API and a list of parts in the order of the
answer. A number counts characters of the answer's text, which the log has anyway; so does the member ``chars`` of a
part.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from callboard.actors.models.model import ProviderReply
from callboard.actors.models.request_parts import in_order
from callboard.bus.effects import Message, Text, ToolOutput, ToolUse
from callboard.lib.canonical_json import canonical
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_types import JSON


def seal(api: str, parts: Sequence[JSON]) -> str:
    """Return the recorded form of the parts; empty if they are nothing but text that the log has anyway."""
    if not any(isinstance(part, dict) for part in parts):
        return ""
    return canonical({"api": api, "parts": parts}).decode()


def unseal(api: str, thought: str) -> list[Any]:
    """Return the parts of a recorded text; none if it is that of another API."""
    try:
        value = decode_json(thought) if thought else None
    except (msgspec.DecodeError, RecursionError):
        return []
    match value:
        case {"api": str(name), "parts": list() as parts} if name == api:
            return [part for part in parts if _is_part(part)]
        case _:
            return []


def _is_part(part: object) -> bool:
    return isinstance(part, dict) or (type(part) is int and part > 0)


class Attached(Struct, frozen=True):
    """A part at its place in a message; ``text`` is the text of its ``chars``, which ``members`` no longer has."""

    members: dict[str, Any]
    text: str = ""


Placed = Text | ToolUse | ToolOutput | Attached


def in_place(message: Message, parts_of: Callable[[str], list[Any]]) -> Iterator[Placed]:
    """Yield the parts of a message in order, as `in_order`, with the attachments at their places.

    ``parts_of`` reads a recorded text. Text that no part claims comes before the first call.
    """
    parts = list(in_order(message))
    calls = [part for part in parts if isinstance(part, ToolUse)]
    attached = deque([*(parts_of(call.thought) for call in calls), parts_of(message.thought)])
    if not any(attached):
        yield from parts
        return
    yield from (part for part in parts if isinstance(part, ToolOutput))
    text = "".join(part.text for part in parts if isinstance(part, Text))
    claimed = sum(_length(one) for one in attached)
    unclaimed = max(0, len(text) - claimed)
    for call in [*calls, None]:
        for part in attached.popleft():
            length = _length([part])
            piece, text = text[:length], text[length:]
            if isinstance(part, int):
                yield Text(piece)
            else:
                yield Attached({name: part[name] for name in part if name != "chars"}, piece)
        if unclaimed:
            yield Text(text[:unclaimed])
            text, unclaimed = text[unclaimed:], 0
        if call is not None:
            yield call


def _length(parts: Sequence[Any]) -> int:
    lengths = [part if isinstance(part, int) else part.get("chars") for part in parts]
    return sum(length for length in lengths if type(length) is int and length > 0)


def continue_reply(earlier: ProviderReply, reply: ProviderReply, api: str) -> ProviderReply:
    """Return the reply of a turn that continued after a pause; the text of ``reply`` has that of ``earlier``."""
    before = unseal(api, earlier.thought)
    progress = "\n\n".join(text for text in (earlier.progress, reply.progress) if text)
    if not reply.tool_calls:
        return replace(reply, progress=progress, thought=seal(api, [*before, *unseal(api, reply.thought)]))
    first, *rest = reply.tool_calls
    first = replace(first, thought=seal(api, [*before, *unseal(api, first.thought)]))
    return replace(reply, progress=progress, tool_calls=[first, *rest])
