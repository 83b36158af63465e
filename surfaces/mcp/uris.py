"""URIs: the addresses of the resources that clients can read."""

import re
from typing import NamedTuple
from urllib.parse import quote, unquote

JSON_TYPE = "application/json"

TEMPLATES = {
    "definition": ("callboard://definitions/{name}", "A registered definition in its current version, by name."),
    "file": ("callboard://files/{path}", "A definition's file, by path in the folders of this server."),
    "result": (
        "callboard://runs/{run_id}/result",
        "The state of a run: status, output, results, error, what it waits for.",
    ),
    "trace": (
        "callboard://runs/{run_id}/trace",
        "The trace of a run: its nodes, model turns and calls, with times.",
    ),
}
"""Kinds of resources: the template of the URI (RFC 6570) and a description."""

_URI = re.compile(r"callboard://(?:(definitions|files)/([^/?#]+)|runs/([^/?#]+)/(result|trace))")


class Address(NamedTuple):
    """The parts of a URI: a ``kind`` of `TEMPLATES` and a name."""

    kind: str
    name: str


def definition_uri(name: str) -> str:
    return f"callboard://definitions/{quote(name, safe='')}"


def file_uri(path: str) -> str:
    return f"callboard://files/{quote(path, safe='')}"


def result_uri(run: str) -> str:
    return f"callboard://runs/{quote(run, safe='')}/result"


def trace_uri(run: str) -> str:
    return f"callboard://runs/{quote(run, safe='')}/trace"


def address_of(uri: str) -> Address | None:
    """Parse a URI; return None if it matches no template."""
    found = _URI.fullmatch(uri)
    if found is None:
        return None
    room, name, run, view = found.groups()
    return Address(view, unquote(run)) if run else Address(room.removesuffix("s"), unquote(name))
