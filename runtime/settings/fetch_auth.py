"""Tokens for fetching: the bearer token for each host, from the configuration.

A value is the token, or ``${VARIABLE}`` for the value of a variable. If the variable is not set,
``CALLBOARD_FETCH_TOKEN`` or ``SWENY_FETCH_TOKEN`` is used instead; neither is ever sent to an unlisted host (workflow
specification, *Sources*).
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from callboard.runtime.settings.tables import Reading, Table, variable_of

FALLBACKS = ("CALLBOARD_FETCH_TOKEN", "SWENY_FETCH_TOKEN")
"""Variables that replace one that is not set, in order of precedence."""

EXPECTED = "a table of hosts, or host=value pairs separated by commas"

_HOST = re.compile(r"(?:[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?")
_TOKEN = re.compile(r"[\x21-\x7e]+")
_ASSUMED = ("80", "443")


def host_tokens(
    given: Any, reading: Reading, *place: str, fallbacks: Sequence[str] = FALLBACKS
) -> dict[str, str] | None:
    """Read a table of tokens by host, as in the ``Host`` header; None if it is not a table."""
    if not isinstance(given, Mapping):
        reading.wrong("not a table", *place, expected=EXPECTED)
        return None
    found: dict[str, str] = {}
    for name, value in cast("Mapping[Any, Any]", given).items():
        if (host := _host(str(name), reading, place)) and (token := _token(host, value, reading, place, fallbacks)):
            found[host] = token
    return found


def _host(name: str, reading: Reading, place: tuple[str, ...]) -> str:
    host = _ascii(name.strip().lower())
    match = _HOST.fullmatch(host)
    if match is not None and match[1] not in _ASSUMED:
        return host
    expected = "a host, with its port unless that is the default: docs.example.com, wiki.example.com:8443"
    what = f"{host!r} names a default port" if match else "a name in it is not a valid host"
    reading.wrong(what, *place, expected=expected)
    return ""


def _token(host: str, given: Any, reading: Reading, place: tuple[str, ...], fallbacks: Sequence[str]) -> str:
    token = given if isinstance(given, str) else ""
    if variable := variable_of(token):
        token = next((reading.env[one] for one in (variable, *fallbacks) if reading.env.get(one)), "")
        if not token:
            reading.unset(variable, "is used without a token", *place, host)
            return ""
    if _TOKEN.fullmatch(token) and "${" not in token:
        return token
    reading.wrong(
        f"{host} has no valid token", *place, expected="a token in printable ASCII characters, or ${VARIABLE}"
    )
    return ""


def _pairs(text: str) -> dict[str, str] | None:
    """Read ``host=value`` pairs separated by commas; None if a word is not a pair."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not all("=" in word for word in words):
        return None
    return {host.strip(): value.strip() for host, _, value in (word.partition("=") for word in words)}


def _ascii(host: str) -> str:
    try:
        return host if host.isascii() else host.encode("idna").decode()
    except UnicodeError:
        return ""


FETCH_AUTH = Table(EXPECTED, host_tokens, _pairs)
