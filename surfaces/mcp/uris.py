"""URIs: what of Callboard clients can read as resources, each under its address."""

import re
from typing import NamedTuple
from urllib.parse import quote, unquote

JSON_TYPE = "application/json"

TEMPLATES = {
    "definition": ("callboard://definitions/{name}", "A registered definition, as it is in force, by its name."),
    "file": ("callboard://files/{path}", "A definition's file, by its path in the folders of this server."),
    "result": ("callboard://runs/{run_id}/result", "How a run stands: status, output, results, error, what it awaits."),
    "trace": (
        "callboard://runs/{run_id}/trace",
        "What a run did: its nodes, model turns and calls, with times.",
    ),
}
"""What a URI is of: its template (RFC 6570) and what one reads there."""

_URI = re.compile(r"callboard://(?:(definitions|files)/([^/?#]+)|runs/([^/?#]+)/(result|trace))")


class Address(NamedTuple):
    """What a URI names: a ``kind`` of `TEMPLATES` and a name."""

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
    """Say what a URI names; None if it is none of ours."""
    found = _URI.fullmatch(uri)
    if found is None:
        return None
    room, name, run, view = found.groups()
    return Address(view, unquote(run)) if run else Address(room.removesuffix("s"), unquote(name))
