"""Tokens for fetching: which host gets which bearer token, from what a configuration says.

A value is the token, or ``${VARIABLE}`` for the one that the environment holds. Where that variable is not set,
``CALLBOARD_FETCH_TOKEN`` or ``SWENY_FETCH_TOKEN`` stands in; neither is ever sent to a host that is not listed
(workflow specification, *Sources*).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from callboard.bus.events import Problem

FALLBACKS = ("CALLBOARD_FETCH_TOKEN", "SWENY_FETCH_TOKEN")
"""Variables whose value stands in for one that is not set, the first one first."""

_HOST = re.compile(r"(?:[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_TOKEN = re.compile(r"[\x21-\x7e]+")
_ASSUMED = ("80", "443")


@dataclass(frozen=True, slots=True)
class HostTokens:
    """Tokens by host, as the ``Host`` header has it; what is wrong, and what looks wrong."""

    tokens: dict[str, str] = field(default_factory=dict[str, str])
    problems: list[Problem] = field(default_factory=list[Problem])
    warnings: list[Problem] = field(default_factory=list[Problem])


def host_tokens(given: Any, env: Mapping[str, str], source: str) -> HostTokens:
    """Read a table of hosts, or, as in the environment, ``host=value`` pairs separated by commas.

    No message repeats a value: it may be a token, though in the wrong place.
    """
    found = HostTokens()
    pairs = _pairs(given) if isinstance(given, str) else given
    if not isinstance(pairs, Mapping):  # also a text with a word that is no pair
        expected = "a table of hosts, or host=value pairs separated by commas"
        found.problems.append(Problem("config.value", "fetch_auth: is none", source, expected=expected))
        return found
    for name, value in pairs.items():
        _take(found, str(name), value, env, source)
    return found


def _pairs(text: str) -> dict[str, str] | None:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not all("=" in word for word in words):
        return None
    return {host.strip(): value.strip() for host, _, value in (word.partition("=") for word in words)}


def _take(found: HostTokens, name: str, value: Any, env: Mapping[str, str], source: str) -> None:
    host = _ascii(name.strip().lower())
    match = _HOST.fullmatch(host)
    if match is None or match[1] in _ASSUMED:
        expected = "a host, with its port if that is not the scheme's own: docs.example.com, wiki.example.com:8443"
        message = (
            f"fetch_auth: {host!r} names the scheme's own port" if match else "fetch_auth: a name in it is no host"
        )
        found.problems.append(Problem("config.value", message, source, expected=expected))
        return
    token = value if isinstance(value, str) else ""
    if reference := _REFERENCE.fullmatch(token):
        token = env.get(reference[1]) or next((env[one] for one in FALLBACKS if env.get(one)), "")
        if not token:
            message = f"fetch_auth: {host} is asked without a token: {reference[1]} is not set"
            found.warnings.append(Problem("config.unset", message, source, severity="warning"))
            return
    if not _TOKEN.fullmatch(token) or "${" in token:
        expected = "a token in printable ASCII characters, or ${VARIABLE}"
        found.problems.append(Problem("config.value", f"fetch_auth: {host} has no token", source, expected=expected))
        return
    found.tokens[host] = token


def _ascii(host: str) -> str:
    try:
        return host if host.isascii() else host.encode("idna").decode()
    except UnicodeError:
        return ""
