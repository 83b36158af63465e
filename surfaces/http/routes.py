"""The routes below ``/api/{tenant}/``: the operation of the service for each, and how requests pass its parameters."""

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Literal, get_type_hints

from msgspec import Struct

from callboard.bus.commands import TELLS, Registration, StartRun
from callboard.features.access.subject import Scope, Subject
from callboard.runtime.admission.definitions import Definitions
from callboard.runtime.client.client import VERDICT_WAIT_S
from callboard.runtime.client.connection import Connection
from callboard.service.operations.fork_starts import ForkRun
from callboard.service.operations.operation import ApiError, Operation, Signature, all_operations
from callboard.service.operations.operations import Operations
from callboard.service.operations.requests import AddSchedule
from callboard.service.operations.run_lists import Listings
from callboard.surfaces.http.access_names import AccessNames
from callboard.surfaces.http.catalogue import Catalogue, DescribeText
from callboard.surfaces.http.evaluations import AddCases, Evaluate, Evaluations
from callboard.surfaces.http.markdown import Markdown, MarkdownText
from callboard.surfaces.http.readings import Readings

Kind = Literal["string", "integer", "number", "list"]
"""The type of a query parameter; a list has items separated by commas."""

_PROVIDERS = (Operations, Readings, Catalogue, Evaluations, Markdown, AccessNames)


def offered_operations(
    connection: Connection, listings: Listings, verdict_wait_s: float = VERDICT_WAIT_S
) -> Mapping[str, Operation]:
    """Return the operations that HTTP offers, by name."""
    return all_operations(
        Operations(connection.log, Definitions(), listings, verdict_wait_s),
        Readings(connection),
        Catalogue(connection),
        Evaluations(connection),
        Markdown(),
        AccessNames(connection),
    )


def signature_of(operation: str) -> Signature:
    """Return the signature of an operation that HTTP offers."""
    return next(found for one in _PROVIDERS if (found := one.signatures().get(operation)) is not None)


_KINDS: Mapping[Any, Kind] = {int: "integer", float: "number", list[str]: "list"}
"""The kinds of members by their type; all others are texts."""


@cache
def _members_of(operation: str) -> Mapping[str, Kind]:
    """Return the members of an operation's request, each with its kind."""
    members = get_type_hints(signature_of(operation).request)
    return {name: _KINDS.get(kind, "string") for name, kind in members.items()}


class HttpRoute(Struct, frozen=True):
    """Maps a ``method`` and ``path`` to an ``operation``.

    ``body`` is the type of the request's JSON body, or None for requests without one. With ``inside``, the body becomes
    the member of that name of the operation's request. ``more`` has fixed members of that request, which override those
    of the HTTP request. ``status`` is the HTTP status of the answer, and ``media`` its media type unless it is JSON of
    the operation's answer type.
    """

    method: str
    path: str
    operation: str
    body: type | None = None
    inside: str = ""
    more: Mapping[str, Any] | None = None
    status: int = 200
    media: str = ""

    @property
    def query(self) -> Mapping[str, Kind]:
        """The query parameters: members of the operation's request that no other part of the HTTP request has."""
        if self.operation == "definition" or (self.body is not None and not self.inside):
            return {}
        elsewhere = {*re.findall(r"{(\w+)}", self.path), self.inside, *(self.more or {})}
        return {name: kind for name, kind in _members_of(self.operation).items() if name not in elsewhere}

    @property
    def pattern(self) -> str:
        """The path in the router's format: an effect key may contain slashes."""
        return self.path.replace("{key}", "{key:path}")

    @property
    def scope(self) -> Scope:
        """The scope that a request to the route requires."""
        if self.operation == "access":
            return "operate"
        if self.method == "GET" or self.operation == "markdown":
            return "read"
        told = self.more.get("verb") if self.more else None
        return "start" if self.operation in ("start", "describe_text") else "answer" if told == "answer" else "operate"

    def sign(self, asked: dict[str, Any], subject: Subject) -> dict[str, Any]:
        """Return the operation's request with the name of the subject, which is recorded in the log."""
        place = _SIGNED.get(self.operation, ()) if self.method != "GET" else ()
        if not place or not subject.name:
            return asked
        *way, member = place
        signed = {**asked}
        inner = signed
        for name in way:
            held = inner.get(name)
            inner[name] = {**held} if isinstance(held, dict) else {}
            inner = inner[name]
        if not (subject.speaks_for_others and inner.get(member)):
            inner[member] = subject.name
        return signed

    def build_request(self, path: Mapping[str, str], query: Mapping[str, str], body: Any) -> dict[str, Any]:
        """Return the operation's request, built from the parts of an HTTP request.

        :raises ApiError: if a query parameter is unknown or has an invalid value
        """
        if unknown := [name for name in query if name not in self.query]:
            expected = ", ".join(self.query) or "none"
            raise ApiError(400, "api.malformed", f"unknown query parameter: {unknown[0]!r}", expected=expected)
        given = {name: _read(name, self.query[name], text) for name, text in query.items()}
        of_body = {self.inside: body} if self.inside else body if isinstance(body, dict) else {}
        placed = {name: _read(name, _PLACES.get(name, "string"), text) for name, text in path.items()}
        return {**of_body, **given, **placed, **(self.more or {})}


_RUN = "/runs/{run_id}"
_NAME = "/definitions/{name}"
_DATASET = "/datasets/{name}"

_SIGNED: Mapping[str, tuple[str, ...]] = {
    "start": ("by",),
    "fork": ("start", "by"),
    "tell": ("body", "by"),
    "definition": ("by",),
    "add_cases": ("by",),
    "evaluate": ("by",),
    "rollback": ("by",),
    "schedule": ("start", "by"),
}
"""Path of the member for the subject's name in the request of each operation."""

_EXPORTS = {"jsonl": "application/x-ndjson", "jaeger": "application/json", "svg": "image/svg+xml"}

_PLACES: Mapping[str, Kind] = {"n": "integer"}
"""The types of path parameters that are not text."""

ROUTES: tuple[HttpRoute, ...] = (
    HttpRoute("POST", "/runs", "start", StartRun, status=202),
    HttpRoute("GET", "/runs", "runs"),
    HttpRoute("GET", "/count", "count"),
    HttpRoute("GET", "/values", "run_values"),
    HttpRoute("GET", "/costs", "costs"),
    HttpRoute("GET", "/questions", "questions"),
    HttpRoute("GET", "/questions/closed", "closed_questions"),
    HttpRoute("GET", "/workers", "workers"),
    HttpRoute("GET", "/access", "access"),
    HttpRoute("GET", "/diff", "diff"),
    HttpRoute("GET", _RUN, "show"),
    HttpRoute("GET", f"{_RUN}/result", "result"),
    HttpRoute("POST", f"{_RUN}/fork", "fork", ForkRun, status=202),
    HttpRoute("GET", f"{_RUN}/trace", "trace"),
    HttpRoute("GET", f"{_RUN}/state", "state"),
    HttpRoute("GET", f"{_RUN}/events", "events"),
    HttpRoute("GET", f"{_RUN}/graph", "geometry"),
    HttpRoute("GET", f"{_RUN}/index", "index"),
    HttpRoute("GET", f"{_RUN}/at/{{n}}", "at"),
    HttpRoute("GET", f"{_RUN}/replay/{{n}}", "replay"),
    HttpRoute("GET", f"{_RUN}/stacks/{{n}}", "stacks"),
    HttpRoute("GET", f"{_RUN}/failures", "failures"),
    HttpRoute("GET", f"{_RUN}/partial/{{n}}", "partial_answer"),
    HttpRoute("GET", f"{_RUN}/seen/{{key}}", "model_input"),
    HttpRoute("GET", f"{_RUN}/blob/{{sha256}}", "blob", media="application/json"),
    *(
        HttpRoute("GET", f"{_RUN}/export.{form}", "export", more={"form": form}, media=media)
        for form, media in _EXPORTS.items()
    ),
    *(HttpRoute("POST", f"{_RUN}/{verb}", "tell", shape, "body", {"verb": verb}, 202) for verb, shape in TELLS.items()),
    HttpRoute("GET", "/definitions", "definitions"),
    HttpRoute("POST", "/definitions", "definition", Registration),
    HttpRoute("POST", "/definitions/about", "describe_text", DescribeText),
    HttpRoute("GET", "/examples", "examples"),
    HttpRoute("POST", "/markdown", "markdown", MarkdownText),
    HttpRoute("GET", _NAME, "definition"),
    HttpRoute("GET", f"{_NAME}/about", "describe"),
    HttpRoute("GET", f"{_NAME}/versions", "versions"),
    HttpRoute("POST", f"{_NAME}/rollback", "rollback"),
    HttpRoute("GET", "/datasets", "datasets"),
    HttpRoute("GET", _DATASET, "dataset"),
    HttpRoute("POST", _DATASET, "add_cases", AddCases),
    HttpRoute("DELETE", _DATASET, "remove_dataset"),
    HttpRoute("POST", f"{_DATASET}/experiments", "evaluate", Evaluate, status=202),
    HttpRoute("GET", "/experiments/{run_id}", "experiment"),
    HttpRoute("GET", "/schedules", "schedules"),
    HttpRoute("POST", "/schedules", "schedule", AddSchedule),
    HttpRoute("POST", "/schedules/{name}/pause", "change_schedule", more={"change": "pause"}),
    HttpRoute("POST", "/schedules/{name}/resume", "change_schedule", more={"change": "resume"}),
    HttpRoute("DELETE", "/schedules/{name}", "change_schedule", more={"change": "remove"}),
)


def _read(name: str, kind: Kind, text: str) -> Any:
    if kind == "list":
        return [part for part in text.split(",") if part]
    readers: Mapping[str, Callable[[str], Any]] = {"integer": int, "number": float, "string": str}
    try:
        return readers[kind](text)
    except ValueError:
        message = f"invalid {name}: {text[:80]!r}"
        raise ApiError(400, "api.malformed", message, expected=f"a value of type {kind}") from None
