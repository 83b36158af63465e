"""Sources: texts that a document gives inline, as a file or as a URL, and their resolution.

A source in a document is a string, classified by its prefix, or an object with one tag (specification, *Sources*).
Inline sources, and files of the start message, are resolved here; others are effects.
"""

from hashlib import sha256
from posixpath import normpath
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import GetJsonSchemaHandler, model_validator

from callboard.bus.effects import Failure
from callboard.languages.language import Failed, Ok, Stage, Unwound
from callboard.languages.parts import Part
from callboard.languages.problems import Complaint, kind_of
from callboard.lib.json_types import JSON

HASH_CHARS = 16
"""The number of hexadecimal digits of the sha256 that identify a resolved source."""

FILE_PREFIXES = ("./", "../", "/")
URL_PREFIXES = ("http://", "https://")
TAGS = ("inline", "file", "url")

SourceKind = Literal["inline", "file", "url"]


class Source(Part):
    """One source. ``value`` is the text, the path or the URL without outer blanks; ``origin`` is the source as written
    in the document.
    """

    kind: SourceKind
    value: str
    origin: Any = None

    @property
    def text(self) -> str:
        """The text of an inline source as written in the document."""
        return self.origin if isinstance(self.origin, str) else self.value

    @model_validator(mode="before")
    @classmethod
    def _classify(cls, raw: Any) -> Any:
        if isinstance(raw, str):
            return _from_text(raw)
        if isinstance(raw, dict):
            return _from_tagged(raw)
        raise Complaint("SCHEMA", f"is {kind_of(raw)}", "a text, a path, a URL, or {inline|file|url: …}")

    @classmethod
    def __get_pydantic_json_schema__(cls, _schema: Any, _handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the schema of a source in a document, which has another form than this model."""
        text = {"type": "string", "minLength": 1}
        tagged = [
            {"properties": {tag: text, **more}, "required": [tag], "additionalProperties": False}
            for tag, more in (("inline", {}), ("file", {}), ("url", {"type": {"const": "fetch"}}))
        ]
        return {"anyOf": [text, {"type": "object", "oneOf": tagged}]}


def _from_text(raw: str) -> dict[str, Any]:
    text = raw.strip()
    if not text:
        raise Complaint("SCHEMA", "must not be empty", "a text, a path or a URL")
    if text.startswith(URL_PREFIXES):
        return {"kind": "url", "value": _checked_url(text), "origin": raw}
    return {"kind": "file" if text.startswith(FILE_PREFIXES) else "inline", "value": text, "origin": raw}


def _from_tagged(raw: dict[str, Any]) -> dict[str, Any]:
    tags = [tag for tag in TAGS if tag in raw]
    surplus = set(raw) - {*tags, *(["type"] if "url" in tags else [])}
    if len(tags) != 1 or surplus:
        found = ", ".join(sorted(raw)) or "nothing"
        raise Complaint("SOURCE_INVALID_SHAPE", f"holds {found}", "exactly one of inline, file, url (url with type)")
    value = raw[tags[0]]
    if not isinstance(value, str) or not value.strip():
        raise Complaint("SOURCE_INVALID_SHAPE", f"{tags[0]!r} is empty or not a text", "a non-empty string")
    if raw.get("type", "fetch") != "fetch":
        raise Complaint("SOURCE_INVALID_TYPE", f"the type {raw['type']!r} is unknown", "'fetch'")
    if tags[0] == "url":
        return {"kind": "url", "value": _checked_url(value.strip()), "origin": raw}
    return {"kind": tags[0], "value": value if tags[0] == "inline" else value.strip(), "origin": raw}


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        complete = parts.scheme in ("http", "https") and parts.hostname and not any(c.isspace() for c in url)
    except ValueError:
        complete = False
    if not complete:
        raise Complaint("SCHEMA", f"{url!r} is not a web address", "an http or https URL with a host")
    return url


# -- resolving --------------------------------------------------------------------------------------------------------

Resolved = dict[str, Any]
"""A resolved source: ``content``, ``kind``, ``origin``, ``resolver``, ``hash``, and ``fetchedAt`` or ``sourcePath``."""


def record(source: Source, content: str, **where: str) -> Resolved:
    """Make the record of a resolved source; ``where`` is ``fetchedAt`` of a URL or ``sourcePath`` of a file."""
    return {
        "content": content,
        "kind": source.kind,
        "origin": source.origin,
        "resolver": "fetch" if source.kind == "url" else source.kind,
        "hash": sha256(content.encode()).hexdigest()[:HASH_CHARS],
        **where,
    }


def resolve_here(source: Source, files: dict[str, str]) -> Resolved | None:
    """Resolve a source that needs no effect: inline text, or the relative path of a file of the start message.

    The ``sourcePath`` of such a file is absolute within those files: ``/prompts/x.md``.
    """
    if source.kind == "inline":
        return record(source, source.text)
    if source.kind == "file" and not source.value.startswith("/"):
        path = normpath(source.value)
        for name, text in files.items():
            if normpath(name) == path:
                return record(source, text.removeprefix("\ufeff"), sourcePath=f"/{path}")
    return None


async def resolve(stage: Stage, sources: dict[str, Source], *, offline: bool) -> dict[str, Resolved] | Failure:
    """Resolve all sources of a run, by field; return the first failure if there is one. Repeated sources are read once.

    The effect ``source.<k>`` (kind ``source``) has the request ``{"kind": "file"|"url", "value": path or URL}`` and
    the value ``{"content": …, "fetchedAt" | "sourcePath": …}``.
    """
    resolved: dict[str, Resolved | Failure] = {}
    wanted: dict[tuple[str, str], list[str]] = {}
    for field, source in sources.items():
        if here := resolve_here(source, stage.info.files):
            resolved[field] = here
        elif source.kind == "url" and offline:
            resolved[field] = Failure("SOURCE_OFFLINE_REQUIRES_FETCH", f"offline, but {source.value} must be fetched")
        else:
            wanted.setdefault((source.kind, _canonical(source)), []).append(field)
    reading = [stage.spawn(_read(stage, k, *key)) for k, key in enumerate(wanted)]
    for fields, settled in zip(wanted.values(), await stage.join(*reading), strict=True):
        for field in fields:
            resolved[field] = _to_resolved(sources[field], settled)
    found = {field: resolved[field] for field in sources}
    failures = {field: failure for field, failure in found.items() if isinstance(failure, Failure)}
    for field, failure in failures.items():
        details = {"field": field, "problems": {name: one.message for name, one in failures.items()}}
        return Failure(failure.code, f"{failure.message} ({field})", details=details, retryable=failure.retryable)
    return {field: one for field, one in found.items() if not isinstance(one, Failure)}


def _canonical(source: Source) -> str:
    return normpath(source.value) if source.kind == "file" else source.value


async def _read(stage: Stage, k: int, kind: str, value: str) -> Ok[JSON] | Failed:
    return await stage.root.call(f"source.{k}", "source", {"kind": kind, "value": value})


def _to_resolved(source: Source, settled: Ok[Ok[JSON] | Failed] | Unwound) -> Resolved | Failure:
    if isinstance(settled, Unwound):
        return settled.cause
    if isinstance(settled.value, Failed):
        return settled.value.error
    match settled.value.value:
        case {"content": str(content), **rest}:
            where = {name: str(rest[name]) for name in ("fetchedAt", "sourcePath") if rest.get(name)}
            return record(source, content, **where)
        case other:
            return Failure("SOURCE_FILE_READ_FAILED", f"{source.value} was answered by {kind_of(other)}")
