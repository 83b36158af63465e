"""Tokens for fetching: which host gets which bearer token, from what a configuration says.

A value is the token, or ``${VARIABLE}`` for the one that the environment holds. Where that variable is not set,
``CALLBOARD_FETCH_TOKEN`` or ``SWENY_FETCH_TOKEN`` stands in; neither is ever sent to a host that is not listed
(workflow specification, *Sources*).
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from callboard.runtime.settings.tables import Reading, Table, variable_of

FALLBACKS = ("CALLBOARD_FETCH_TOKEN", "SWENY_FETCH_TOKEN")
"""Variables whose value stands in for one that is not set, the first one first."""

EXPECTED = "a table of hosts, or host=value pairs separated by commas"

_HOST = re.compile(r"(?:[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?")
_TOKEN = re.compile(r"[\x21-\x7e]+")
_ASSUMED = ("80", "443")


def host_tokens(
    given: Any, reading: Reading, *place: str, fallbacks: Sequence[str] = FALLBACKS
) -> dict[str, str] | None:
    """Read a table of tokens by host, as the ``Host`` header has it; None if it is no table."""
    if not isinstance(given, Mapping):
        reading.wrong("is none", *place, expected=EXPECTED)
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
    expected = "a host, with its port if that is not the scheme's own: docs.example.com, wiki.example.com:8443"
    what = f"{host!r} names the scheme's own port" if match else "a name in it is no host"
    reading.wrong(what, *place, expected=expected)
    return ""


def _token(host: str, given: Any, reading: Reading, place: tuple[str, ...], fallbacks: Sequence[str]) -> str:
    token = given if isinstance(given, str) else ""
    if variable := variable_of(token):
        token = next((reading.env[one] for one in (variable, *fallbacks) if reading.env.get(one)), "")
        if not token:
            reading.unset(variable, "is asked without a token", *place, host)
            return ""
    if _TOKEN.fullmatch(token) and "${" not in token:
        return token
    reading.wrong(f"{host} has no token", *place, expected="a token in printable ASCII characters, or ${VARIABLE}")
    return ""


def _pairs(text: str) -> dict[str, str] | None:
    """Read ``host=value`` pairs separated by commas; None if a word is no pair."""
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
