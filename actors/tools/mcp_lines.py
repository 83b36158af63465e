"""Lines of an MCP server: from the bytes of a line to JSON-RPC messages, or to the reason why it cannot be read.

The text of a careless server is repaired as far as it can be read: half of a surrogate pair (JSON allows the escape
``\\ud83d``, UTF-8 does not) and bytes that are not UTF-8 become U+FFFD, a byte order mark is dropped, a batch is taken
apart. A line that cannot be read still says, in most cases, which request it answers.
"""

import json
import re
from collections.abc import Collection
from typing import Any

import msgspec
from mcp.types import JSONRPCMessage, jsonrpc_message_adapter
from pydantic import TypeAdapter, ValidationError

SCANNED_BYTES = 1024 * 1024
"""How much of the beginning of an unreadable line is searched for the id of its request."""

TAIL_BYTES = 4096
"""How much of the end of an unreadable line is searched for the id of its request."""

_ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\."
)
"""An escape of JSON: a surrogate pair, half of one (the group), or any other."""

_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
_BOM = b"\xef\xbb\xbf"

_TOKEN = re.compile(rb'"((?:[^"\\]|\\.)*)"|[{}\[\]]')
_ID = re.compile(rb'\s*:\s*(-?\d+|"(?:[^"\\]|\\.)*")')
_COLON = re.compile(rb"\s*:")
_LOOSE_ID = re.compile(rb'"id"\s*:\s*(-?\d+|"[^"\\]*")')


class UnreadableLine(ValueError):
    """A line holds no message; the text says why.

    ``is_answer`` says that the line looks like a JSON-RPC response, and ``ids`` which requests it may answer: one id if
    the line has a member ``id``, else all ids found in it.
    """

    def __init__(self, why: str, is_answer: bool = False, ids: Collection[str] = ()) -> None:
        super().__init__(why)
        self.is_answer = is_answer
        self.ids = frozenset(ids)


def messages_of(line: bytes) -> list[JSONRPCMessage]:
    """Return the messages of a line: one, or those of a batch.

    :raises UnreadableLine: if the line holds no message
    """
    text = repair_json(line)
    try:
        if text.lstrip().startswith(b"["):
            return [jsonrpc_message_adapter.validate_python(one) for one in _batch(text)]
        return [jsonrpc_message_adapter.validate_json(text, by_name=False)]
    except ValueError as error:
        listing = _deep_listing(text)
        if listing is not None:
            return [listing]
        raise _unreadable(text, reason(error)) from error


def repair_json(data: bytes) -> bytes:
    """Return JSON as UTF-8 without a byte order mark and without halves of surrogate pairs."""
    data = data.removeprefix(_BOM)
    try:
        data.decode()
    except UnicodeDecodeError:
        data = data.decode("utf-8", "replace").encode()
    if _HALF.search(data) is None:
        return data
    return _ESCAPE.sub(lambda found: rb"\ufffd" if found[1] else found[0], data)


def reason(error: ValueError) -> str:
    """Return why a text is not a message, without quoting it."""
    if not isinstance(error, ValidationError):
        return str(error)
    found = error.errors(include_url=False, include_context=False, include_input=False)
    if found[0]["type"] == "json_invalid":
        return found[0]["msg"]
    return "it is JSON, but not a JSON-RPC 2.0 message with an object as result, or with an error of code and message"


def _deep_listing(text: bytes) -> JSONRPCMessage | None:
    """Read a list of tools that is nested deeper than the SDK accepts, so that its other tools can be used."""
    try:
        found = json.loads(text)
        if isinstance(found["result"]["tools"], list):
            return jsonrpc_message_adapter.validate_python(found, by_name=False)
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return None


def _batch(text: bytes) -> list[Any]:
    batch: list[Any] = TypeAdapter(Any).validate_json(text)
    if not batch:
        raise ValueError("it is an empty batch")
    return batch


def _unreadable(text: bytes, why: str) -> UnreadableLine:
    head = text[:SCANNED_BYTES].lstrip()
    if not head.startswith((b"{", b"[")):
        return UnreadableLine(why)
    found, is_request = _members(head)
    if is_request:
        return UnreadableLine(why)
    if found is not None:
        return UnreadableLine(why, is_answer=True, ids=[found])
    if b'"jsonrpc"' not in head and b'"jsonrpc"' not in text[-TAIL_BYTES:]:
        return UnreadableLine(why)
    loose = [*_LOOSE_ID.findall(head), *_LOOSE_ID.findall(text[-TAIL_BYTES:])]
    return UnreadableLine(why, is_answer=True, ids=[_id(one) for one in loose])


def _members(text: bytes) -> tuple[str | None, bool]:
    """Return the member ``id`` of the outermost object, and whether it has a member ``method``. In that case it is a
    request, whose id is the server's own."""
    depth = 0
    found: str | None = None
    for token in _TOKEN.finditer(text):
        match token[0]:
            case b"{" | b"[":
                depth += 1
            case b"}" | b"]":
                depth -= 1
            case b'"id"' if depth == 1 and (value := _ID.match(text, token.end())):
                found = _id(value[1])
            case b'"method"' if depth == 1 and _COLON.match(text, token.end()):
                return None, True
            case _:
                continue
    return found, False


def _id(text: bytes) -> str:
    """Return an id as text: some servers return numbers as strings."""
    try:
        return str(msgspec.json.decode(text))
    except msgspec.DecodeError:
        return text.decode("utf-8", "replace")
