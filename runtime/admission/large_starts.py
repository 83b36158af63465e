"""Large starts: parts of a start message that are detached and stored as large values of its run.

The message lists them by place, ``{"blobs": {"input": <sha256>, "files.rules.md": <sha256>}}``. Because references are
only in that list, the message is not searched for them and no value can be mistaken for one. Each part is loaded once,
their total size is limited, and each must have the given digest. Definitions stay in the message.
"""

import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

import msgspec
from anyio import to_thread
from msgspec import Struct, field

from callboard.bus.events import Problem
from callboard.bus.nats.blobs import BlobTooLarge
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.subjects import RunRef, token
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS

BLOBS = "blobs"

BLOB_MISSING = "start.blob_missing"

MEMBERS = ("input", "arguments", "script", "files", "children", "state")
"""Members that may be detached from a start message. A single file may be detached too, as ``files.<path>``."""

FILE = "files."

START_BYTES_MAX = 16 * 1024 * 1024
"""Maximum total size of the detached parts of one start message."""

VALUES_MAX = 250_000
"""Maximum number of values in one part, estimated by its commas and brackets. A string is one value."""

PARTS_MAX = 1_000

PART_BYTES_MIN = 4 * 1024
"""Smaller parts stay in the message."""

_DIGEST = re.compile(r"[0-9a-f]{64}")


# -- sending ----------------------------------------------------------------------------------------------------------


class Detached(Struct):
    """A start message without its largest parts, and these parts by digest. ``size`` is their total size in bytes."""

    message: dict[str, Any]
    parts: dict[str, bytes] = field(default_factory=dict[str, bytes])
    size: int = 0

    def detach(self, place: str, data: bytes) -> None:
        """Take a part out of the message."""
        digest = sha256(data).hexdigest()
        self.parts[digest] = data
        self.size += len(data)
        self.message[BLOBS] = {**self.message.get(BLOBS, {}), place: digest}
        if place.startswith(FILE):
            self.message["files"] = {n: text for n, text in self.message["files"].items() if n != place[len(FILE) :]}
        else:
            del self.message[place]


def detach_parts(message: Mapping[str, Any], bytes_max: int) -> Detached:
    """Detach parts from a start message, the largest first, until the message fits into ``bytes_max``."""
    found = Detached(dict(message))
    size = len(msgspec.json.encode(message))
    parts = [(place, data) for place, data in _parts(message) if len(data) >= PART_BYTES_MIN]
    for place, data in sorted(parts, key=lambda part: -len(part[1])):
        if size <= bytes_max:
            break
        found.detach(place, data)
        size = len(msgspec.json.encode(found.message))
    if size > bytes_max and found.message.get("files"):
        # The rest is many small files.
        found.detach("files", msgspec.json.encode(found.message["files"]))
    return found


def _parts(message: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    for member in MEMBERS:
        value = message.get(member)
        if member == "files" and isinstance(value, dict):
            yield from ((f"{FILE}{name}", msgspec.json.encode(text)) for name, text in value.items())
        elif value is not None:
            yield member, msgspec.json.encode(value)


# -- receiving --------------------------------------------------------------------------------------------------------


async def insert_parts(log: JetStreamLog, tenant: str, document: dict[str, Any]) -> dict[str, Any] | list[Problem]:
    """Return a start message with its detached parts inserted, or every problem with them.

    :raises NoAnswer: if the log does not answer
    """
    problems = _check(document)
    if problems:
        return problems
    ref = RunRef(tenant, document["run_id"])
    whole = {name: value for name, value in document.items() if name != BLOBS}
    left = START_BYTES_MAX
    # Whole members first: single files may come on top of them.
    for place, digest in sorted(document[BLOBS].items(), key=lambda named: named[0].startswith(FILE)):
        try:
            data = await log.get_blob(ref, digest, left)
        except KeyError:
            problems.append(_problem(BLOB_MISSING, place, "this run has no such large value", digest))
            continue
        except BlobTooLarge:
            return [too_large_problem(f"the detached parts have more than {START_BYTES_MAX} bytes in total", place)]
        left -= len(data)
        value = await to_thread.run_sync(_value, place, digest, data)
        if isinstance(value, Problem):
            problems.append(value)
        elif place.startswith(FILE):
            whole["files"] = {**whole.get("files", {}), place[len(FILE) :]: value.value}
        else:
            whole[place] = value.value
    return problems or whole


def part_digests(document: dict[str, Any]) -> set[str]:
    """The digests of the detached parts of a start message; empty if its list of parts is invalid."""
    return set(document[BLOBS].values()) if BLOBS in document and not _check(document) else set()


def too_large_problem(message: str, where: str = "message") -> Problem:
    """The problem of a start whose detached parts are too large."""
    expected = f"at most {START_BYTES_MAX} bytes; pass URLs or paths instead of the files themselves"
    return Problem("start.too_large", message, where, expected=expected)


class _Value(Struct, frozen=True):
    value: Any


def _value(place: str, digest: str, data: bytes) -> _Value | Problem:
    """Read a large value; return a problem if it is invalid."""
    if sha256(data).hexdigest() != digest:
        return _problem(BLOB_MISSING, place, "the stored value has another digest", digest)
    if data[:1] != b'"' and sum(data.count(sign) for sign in (b",", b"[", b"{")) > VALUES_MAX:
        message = "the large value contains too many values"
        return Problem("start.too_large", message, place, expected=f"at most {VALUES_MAX} commas and brackets")
    try:
        value = decode_json(data)
    except JSON_ERRORS as error:
        return Problem("start.malformed", f"the large value is not JSON: {error}", place)
    if place == "files" and not isinstance(value, dict):
        return Problem("start.type", "the large value is not an object", place, expected="an object of texts by path")
    return _Value(value)


def _check(document: dict[str, Any]) -> list[Problem]:
    """Check the list of detached parts of a message."""
    run_id, blobs = document.get("run_id"), document[BLOBS]
    if not isinstance(run_id, str) or not run_id:
        return [_problem("start.blobs", "", "no run_id is given, but large values belong to a run")]
    try:
        token(run_id)
    except ValueError:
        return [Problem("start.run_id", "the run id is too long", "run_id")]
    if not isinstance(blobs, dict) or len(blobs) > PARTS_MAX:
        return [_problem("start.blobs", "", f"blobs is not an object of at most {PARTS_MAX} members")]
    problems: list[Problem] = []
    for place, digest in blobs.items():
        if place not in MEMBERS and not place.startswith(FILE):
            problems.append(_problem("start.blobs", place, "this member cannot be detached"))
        elif not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            problems.append(_problem("start.blobs", place, "this is not a sha256 in lower-case hexadecimal digits"))
        elif place in document or (place.startswith(FILE) and _has(document.get("files"), place[len(FILE) :])):
            problems.append(_problem("start.blobs", place, "the message has this member too"))
    return problems


def _has(files: Any, name: str) -> bool:
    """Whether a message has a file of this name, or a value for ``files`` to which no file can be added."""
    return files is not None and (not isinstance(files, dict) or name in files)


def _problem(code: str, place: str, message: str, digest: str = "") -> Problem:
    places = f"{', '.join(MEMBERS)} or files.<path>, with a sha256"
    expected = f"the value whose sha256 is {digest}" if digest else places
    return Problem(code, message, f"{BLOBS}.{place}" if place else BLOBS, expected=expected)
