"""Sources: texts that a definition takes from a file or a URL; carries out the effect kind ``source``.

A request is ``{"kind": "file" | "url" | "inline", "value": …}`` or one of the specification's forms: a text (whose
prefix determines its kind) or ``{"inline": …}``, ``{"file": …}``, ``{"url": …, "type": "fetch"}``. The answer is the
ResolvedSource record: ``content``, ``kind``, ``origin``, ``resolver``, ``hash``, and ``fetchedAt`` or ``sourcePath``
(workflow specification, *Sources*).
"""

import datetime as dt
import hashlib
import posixpath
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from anyio import to_thread
from msgspec import Struct, field

from callboard.actors.fetch import FetchFailed, FetchRules, fetch_text
from callboard.bus.effects import Failure
from callboard.lib.json_types import JSON
from callboard.lib.private_files import LeadsOutside, path_below
from callboard.lib.text_bytes import NotText, decode_text, plain_text, without_nul

HASH_CHARS = 16
"""How many characters of the sha256, in hex, identify a content."""

NAMED_MAX = 5
"""How many files of a folder a message names."""

Kind = Literal["inline", "file", "url"]


class SourceFailed(Exception):
    """A source gave no text.

    Codes: ``SOURCE_INVALID_SHAPE``, ``SOURCE_INVALID_TYPE``, ``SOURCE_FILE_NOT_FOUND``, ``SOURCE_FILE_READ_FAILED``,
    ``SOURCE_FILE_OUTSIDE_ROOT``, ``SOURCE_OFFLINE_REQUIRES_FETCH``, ``SOURCE_TOO_LARGE``, ``SOURCE_URL_UNREACHABLE``,
    ``SOURCE_URL_HTTP_ERROR``, ``SOURCE_URL_AUTH_REQUIRED``, ``SOURCE_URL_BLOCKED``.
    """

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.code}: {failure.message}")
        self.failure = failure


class SourceRules(Struct, frozen=True):
    """The limits on what sources may read: ``offline`` refuses URLs, ``bytes_max`` limits files, ``fetch`` URLs."""

    offline: bool = False
    bytes_max: int = 4 * 1024 * 1024
    fetch: FetchRules = field(default_factory=FetchRules)


class _Form(NamedTuple):
    kind: Kind
    value: str


async def resolve(
    request: JSON,
    files: Mapping[str, str],
    base_dir: Path | None,
    rules: SourceRules | None = None,
) -> dict[str, Any]:
    """Return the ResolvedSource record of a source.

    A file is looked up in ``files`` of the start message first (its ``sourcePath`` is absolute within them), then below
    ``base_dir``, which it may not leave. Without a base directory, the worker does not read its disk.

    :raises SourceFailed: if the text cannot be read
    """
    rules = rules or SourceRules()
    form = _classify(request)
    where: dict[str, str] = {}
    match form.kind:
        case "inline":
            content = form.value
        case "file":
            content, where["sourcePath"] = await _read(form.value, files, base_dir, rules.bytes_max)
        case "url":
            content = await _fetch(form.value, rules)
            where["fetchedAt"] = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {
        "content": content,
        "kind": form.kind,
        "origin": request["value"] if isinstance(request, dict) and "value" in request else request,
        "resolver": "fetch" if form.kind == "url" else form.kind,
        "hash": hashlib.sha256(content.encode("utf-8", "replace")).hexdigest()[:HASH_CHARS],
        **where,
    }


def _classify(request: JSON) -> _Form:
    match request:
        case {"kind": "inline" | "file" | "url" as kind, "value": str(value), **rest} if not rest:
            form = _Form(kind, value)
        case {"inline": str(value), **rest} if not rest:
            form = _Form("inline", value)
        case {"file": str(value), **rest} if not rest:
            form = _Form("file", value.strip())
        case {"url": str(value), **rest} if not set(rest) - {"type"}:
            if rest.get("type", "fetch") != "fetch":
                raise _failure(
                    "SOURCE_INVALID_TYPE", f"the type {rest['type']!r} of a URL source is unknown, use 'fetch'"
                )
            form = _Form("url", value.strip())
        case str(value):
            form = _classify_text(value.strip())
        case _:
            found = f"an object with {sorted(request)}" if isinstance(request, dict) else type(request).__name__
            expected = "a text, {inline: text}, {file: path} or {url: address, type?: fetch}"
            raise _failure("SOURCE_INVALID_SHAPE", f"a source is {found}; expected {expected}")
    if not form.value.strip():
        raise _failure("SOURCE_INVALID_SHAPE", f"the {form.kind} source is empty; expected a text")
    return form


def _classify_text(text: str) -> _Form:
    if text.startswith(("./", "../", "/")):
        return _Form("file", text)
    return _Form("url" if text.startswith(("http://", "https://")) else "inline", text)


async def _read(value: str, files: Mapping[str, str], base_dir: Path | None, bytes_max: int) -> tuple[str, str]:
    """Find a file; return its text and its path."""
    wanted = posixpath.normpath(value)
    for name, text in files.items():
        if posixpath.normpath(name) == wanted:
            return _without_nul(plain_text(text), value), posixpath.join("/", wanted)
    folder = "" if wanted == "." else f"{wanted}/"
    if within := sorted(name for name in files if posixpath.normpath(name).startswith(folder)):
        raise _failure(
            "SOURCE_FILE_READ_FAILED", f"{value} is a folder; a source is one of its files: {_list_names(within)}"
        )
    if base_dir is None:
        brought = f"the start message brought {', '.join(sorted(files)) or 'none'}"
        raise _failure("SOURCE_FILE_NOT_FOUND", f"file {value} not found; {brought}, and this worker reads no folder")
    return await to_thread.run_sync(_read_below, value, base_dir, bytes_max)


def _list_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return f"{', '.join(names[:NAMED_MAX])}{more}"


def _read_below(value: str, base_dir: Path, bytes_max: int) -> tuple[str, str]:
    try:
        path = path_below(base_dir, value)
        if path.is_dir():
            raise _failure("SOURCE_FILE_READ_FAILED", f"{path} is a folder; a source is one of its files")
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe or device might never end
            raise _failure("SOURCE_FILE_READ_FAILED", f"{path} is not a regular file")
        with path.open("rb") as file:
            content = file.read(bytes_max + 1)
    except LeadsOutside as error:
        remedy = "put it below, or bring it in the start message's files"
        raise _failure("SOURCE_FILE_OUTSIDE_ROOT", f"the file {error}; {remedy}") from error
    except FileNotFoundError as error:
        raise _failure("SOURCE_FILE_NOT_FOUND", f"file {value} not found below {base_dir}") from error
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: a loop of links
        message = f"the file {value} cannot be read: {type(error).__name__}: {error}"
        raise _failure("SOURCE_FILE_READ_FAILED", message) from error
    if len(content) > bytes_max:
        raise _failure("SOURCE_TOO_LARGE", f"the file {value} has more than {bytes_max} bytes")
    try:
        text = decode_text(content)
    except NotText as error:
        raise _failure("SOURCE_FILE_READ_FAILED", f"the file {value} cannot be read: {error}") from error
    return _without_nul(text, value), str(path)


def _without_nul(text: str, name: str) -> str:
    try:
        return without_nul(text)
    except NotText as error:
        raise _failure("SOURCE_FILE_READ_FAILED", f"the file {name} cannot be read: {error}") from error


async def _fetch(url: str, rules: SourceRules) -> str:
    if rules.offline:
        raise _failure("SOURCE_OFFLINE_REQUIRES_FETCH", f"this worker is offline, but {url} must be fetched")
    try:
        return await fetch_text(url, rules.fetch)
    except FetchFailed as failed:
        raise SourceFailed(Failure(failed.code, failed.message, retryable=failed.retryable)) from failed


def _failure(code: str, message: str) -> SourceFailed:
    return SourceFailed(Failure(code, message, retryable=False))
