"""Contents: what a result of an MCP server comes to as the output of a tool, and where its pictures and sounds go.

Structured content is the output, else the text parts as one text, else the list of the parts. What comes as Base64 (an
image, audio, a file) is kept beside the event, and the part says under which sha256 and how many bytes it has: no
model can look at Base64, and the log need not carry it.
"""

import base64
from typing import TYPE_CHECKING, Any

from callboard.actors.tools.tool import Keep
from callboard.bus.effects import JSON

if TYPE_CHECKING:
    from mcp_types import CallToolResult


def text_of(result: "CallToolResult") -> str:
    """The text parts of a result, one per line."""
    return "\n".join(part.text for part in result.content if part.type == "text")


async def output_of(result: "CallToolResult", keep: Keep) -> JSON:
    """Return a result as a tool's output; whatever is binary in it is kept.

    :raises ValueError: if a part that should be Base64 is none
    """
    if result.structured_content is not None:
        return result.structured_content
    if all(part.type == "text" for part in result.content):
        return text_of(result)
    parts = [part.model_dump(mode="json", by_alias=True, exclude_none=True) for part in result.content]
    return [await _kept(part, keep) for part in parts]


async def _kept(part: dict[str, Any], keep: Keep) -> dict[str, Any]:
    match part:
        case {"type": "image" | "audio" as kind, "data": str(text), **rest}:
            return {"type": kind, **rest, **await _named(text, keep)}
        case {"type": "resource" as kind, "resource": {"blob": str(text), **resource}, **rest}:
            return {"type": kind, **rest, "resource": {**resource, **await _named(text, keep)}}
        case _:
            return part


async def _named(text: str, keep: Keep) -> dict[str, Any]:
    data = base64.b64decode(text, validate=True)
    return {"sha256": await keep(data), "bytes": len(data)}
