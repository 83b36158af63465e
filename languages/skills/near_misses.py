"""Near misses in the configuration of MCP servers: references and values that other programs would replace."""

import re
from collections.abc import Iterator

from callboard.languages.problems import Location
from callboard.languages.skills.skill import McpServer
from callboard.languages.variables import find_references

UNFILLED = "UNFILLED_VARIABLE"
"""The code of the warning that a reference to a variable is not replaced."""

VALUE_SHOWN_CHARS_MAX = 20

_VALUE = re.compile(r"-?\d+(\.\d+)?|true|false|[a-z]+://\S+|[~./]*/\S*|(?=\S*\d)\S{20,}", re.IGNORECASE)
"""A value instead of a description of it: a number, a switch, an address, a path, a token."""


def server_near_misses(server: McpServer) -> Iterator[tuple[Location, str, str]]:
    """Yield the place of each reference that is not replaced, a message, and the form that is probably meant."""
    for name, described in server.env.items():
        yield from _check_description(name, described)
    for name, text in server.headers.items():
        for one in find_references(text):
            if not one.ours:
                message = f"{one.text!r} is sent as it is written: variables are filled in as ${{NAME}}"
                yield ("headers", name), message, f"${{{one.name or 'NAME'}}}"
                break
    command: list[tuple[Location, str | None]] = [(("command",), server.command), (("url",), server.url)]
    for location, text in [*command, *((("args", index), text) for index, text in enumerate(server.args))]:
        for one in find_references(text or ""):
            message = f"{one.text!r} is passed on as it is written: variables are filled in in headers only"
            way = "a header" if location == ("url",) else f"the server's own variable, {one.name or 'NAME'} in `env`"
            yield location, message, way
            break


def _check_description(name: str, described: str) -> Iterator[tuple[Location, str, str]]:
    found = next(find_references(described), None)
    if found is not None:
        message = f"{found.text!r} is a description here: the server gets the worker's variable {name}"
        other = f"; set {name} there to what {found.name} has" if found.name not in ("", name) else ""
        yield ("env", name), message, f"{name} with a description of it{other}"
    elif _VALUE.fullmatch(described.strip()):
        shown = described[:VALUE_SHOWN_CHARS_MAX] + ("…" if len(described) > VALUE_SHOWN_CHARS_MAX else "")
        message = f"{shown!r} is read as a description, not as a value: the server gets the worker's variable {name}"
        yield ("env", name), message, f"{name} with a description of it, and the value where the worker runs"
