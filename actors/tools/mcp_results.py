"""The results of calls to MCP servers: their contents.

Structured content is the output, else the text parts as one text, else the list of the parts. Binary data in Base64 (an
image, audio, a file) is stored outside the event, wherever it is in the output; its place has its sha256 and its number
of bytes. No model can read Base64, and the log need not carry it.
"""

import base64
import re
from typing import TYPE_CHECKING, Any

from callboard.actors.tools.tool import Keep
from callboard.lib.json_types import JSON
from callboard.lib.text import normalise_json

if TYPE_CHECKING:
    from mcp.types import CallToolResult

BINARY = re.compile(r"(image|audio|video|font)/|application/(pdf|zip|gzip|octet-stream|x-tar|msword|vnd\.)")
"""Media types whose ``data`` is Base64."""

MEDIA_TYPES = ("mimeType", "mime_type", "mediaType", "media_type", "contentType", "content_type")
"""Members that name the media type of the ``data`` next to them."""

MAGIC = {
    "iVBORw0KGgo": "image/png",
    "/9j/": "image/jpeg",
    "R0lGODdh": "image/gif",
    "R0lGODlh": "image/gif",
    "UklGR": "image/webp",
    "Qk0": "image/bmp",
    "SUkqA": "image/tiff",
    "TU0AK": "image/tiff",
    "JVBERi0": "application/pdf",
    "UEsDB": "application/zip",
    "SUQz": "audio/mpeg",
    "T2dnU": "audio/ogg",
}
"""The first characters of common formats in Base64."""

DATA_URL_CHARS_MIN = 256
"""A shorter data URL is left in place: a small icon costs less than the object that would replace it."""

BARE_CHARS_MIN = 1024
"""Undeclared text that looks like Base64 is treated as such from this length on."""

_BASE64 = re.compile(
    r"data:(?P<declared>[\w.+-]+/[\w.+-]+)(?:;[\w.=+-]+)*;base64,"
    rf"(?P<url>[A-Za-z0-9+/_-]{{{DATA_URL_CHARS_MIN},}}={{0,2}})"
    rf"|(?<![A-Za-z0-9+/])(?P<bare>(?:{'|'.join(map(re.escape, MAGIC))})[A-Za-z0-9+/]{{{BARE_CHARS_MIN},}}={{0,2}})"
)


def text_of(result: "CallToolResult") -> str:
    """Return the text parts of a result, one per line."""
    return "\n".join(part.text for part in result.content if part.type == "text")


async def output_of(result: "CallToolResult", keep: Keep) -> JSON:
    """Return a result as a tool's output; binary data in it is kept.

    :raises ValueError: if a part that should be Base64 is not
    """
    if result.structured_content is not None:
        return await without_binary(result.structured_content, keep)
    if all(part.type == "text" for part in result.content):
        return await _in_text(normalise_json(text_of(result)), keep, whole=False)
    parts = [part.model_dump(mode="json", by_alias=True, exclude_none=True) for part in result.content]
    return [await without_binary(await _keep_part(part, keep), keep) for part in parts]


async def without_binary(value: JSON, keep: Keep) -> JSON:
    """Return a JSON value whose binary data, at any depth, is kept elsewhere."""
    root: list[Any] = [normalise_json(value)]
    todo: list[Any] = [root]
    while todo:
        container = todo.pop()
        for key in list(container) if isinstance(container, dict) else range(len(container)):
            inner: Any = container[key]
            if isinstance(inner, str):
                inner = await _in_text(inner, keep, whole=True)
            elif isinstance(inner, dict):
                inner = await _in_object(inner, keep)
            container[key] = inner
            if isinstance(inner, dict | list):
                todo.append(inner)
    return root[0]


async def _in_object(value: dict[str, Any], keep: Keep) -> dict[str, Any]:
    """Keep the Base64 that an object declares: ``data`` next to a media type, or the ``blob`` of a resource."""
    media_type = next((value[name] for name in MEDIA_TYPES if isinstance(value.get(name), str)), "")
    is_file = value.get("type") in ("image", "audio") or BINARY.match(media_type)
    for member in ("data", "blob"):
        text = value.get(member)
        declared = is_file if member == "data" else bool(media_type) or "uri" in value
        if not isinstance(text, str) or not declared:
            continue
        try:
            named = await _keep_text(text, keep)
        except ValueError:
            continue
        return {**{key: inner for key, inner in value.items() if key != member}, **named}
    return value


async def _in_text(text: str, keep: Keep, *, whole: bool) -> Any:
    """Keep the Base64 in a text; an object replaces a text that has nothing else, if the ``whole`` may be replaced."""
    pieces: list[str] = []
    end = 0
    for found in _BASE64.finditer(text):
        data = _decode_base64(found["url"] or found["bare"])
        if data is None:
            continue
        media_type = found["declared"] or next(kind for start, kind in MAGIC.items() if found["bare"].startswith(start))
        digest = await keep(data)
        if whole and found.span() == (0, len(text)):
            return {"mimeType": media_type, "sha256": digest, "bytes": len(data)}
        pieces += [text[end : found.start()], f"[{media_type}, {len(data)} bytes, sha256 {digest}]"]
        end = found.end()
    return "".join([*pieces, text[end:]]) if pieces else text


def _decode_base64(text: str) -> bytes | None:
    plain = text.replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except ValueError:
        return None


async def _keep_part(part: dict[str, Any], keep: Keep) -> dict[str, Any]:
    match part:
        case {"type": "image" | "audio" as kind, "data": str(text), **rest}:
            return {"type": kind, **rest, **await _keep_text(text, keep)}
        case {"type": "resource" as kind, "resource": {"blob": str(text), **resource}, **rest}:
            return {"type": kind, **rest, "resource": {**resource, **await _keep_text(text, keep)}}
        case _:
            return part


async def _keep_text(text: str, keep: Keep) -> dict[str, Any]:
    data = base64.b64decode(text, validate=True)
    return {"sha256": await keep(data), "bytes": len(data)}
