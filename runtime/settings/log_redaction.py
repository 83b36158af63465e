"""Log redaction: secrets never reach the log, whichever library logs them.

Libraries log the addresses of their requests at level debug, and errors quote them. Some services keep a secret in the
address. So each line is searched after it is formatted, with its traceback.
"""

import re
from collections.abc import Iterable, Mapping

HIDDEN = "***"

SECRET_CHARS_MIN = 8
"""Shorter values are not searched for: they would be found in ordinary words."""

_NAMES = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|SEED|WEBHOOK|CREDENTIAL", re.IGNORECASE)
"""Names of variables that hold a secret."""

_NAMES_IN_CODE = re.compile(r"API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
"""Names of variables in code whose texts are secrets; there ``key`` alone is usually one of a mapping."""

_PATTERNS = (
    (re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^/\s@'\"]+@", re.IGNORECASE), rf"\1{HIDDEN}@"),
    (re.compile(r"(/bot)\d+:[A-Za-z0-9_-]+"), rf"\1{HIDDEN}"),
    (re.compile(r"(hooks\.slack\.com/(?:services|triggers|workflows)/)[^\s'\"<>)]+"), rf"\1{HIDDEN}"),
    (re.compile(r"(discord(?:app)?\.com/api/(?:v\d+/)?webhooks/)[^\s'\"<>)]+"), rf"\1{HIDDEN}"),
    (re.compile(r"(authorization.{1,8}?(?:bearer|basic|bot)\s+)[^\s'\"]+", re.IGNORECASE), rf"\1{HIDDEN}"),
    (re.compile(r"(\bbearer\s+)(?=\S*\d)[A-Za-z0-9._~+/=-]{16,}", re.IGNORECASE), rf"\1{HIDDEN}"),
)
"""Places of secrets: before the host of an address, in paths of Telegram, Slack and Discord, in headers."""


def names_secret(name: str) -> bool:
    """Return whether the name of a variable in code says that its text is a secret."""
    return _NAMES_IN_CODE.search(name) is not None


class LogRedaction:
    """Replaces secrets in a line of the log."""

    def __init__(self) -> None:
        self._values: tuple[str, ...] = ()

    def keep_out(self, secrets: Iterable[str], env: Mapping[str, str]) -> None:
        """Replace these values from now on, and those of variables whose names say that they are secret."""
        named = (value for name, value in env.items() if _NAMES.search(name))
        found = {value for value in (*secrets, *named) if len(value) >= SECRET_CHARS_MIN}
        # Longer values first: replacing a part of one would leave the rest visible.
        self._values = tuple(sorted({*self._values, *found}, key=len, reverse=True))

    def line(self, text: str) -> str:
        """Return a line without secrets."""
        for value in self._values:
            if value in text:
                text = text.replace(value, HIDDEN)
        for pattern, instead in _PATTERNS:
            text = pattern.sub(instead, text)
        return text


redaction = LogRedaction()
"""The redaction of this process; `callboard.runtime.settings.logs` applies it to each line."""
