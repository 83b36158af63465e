"""Redaction: secrets are replaced by their names in everything that is recorded."""

from collections.abc import Mapping
from typing import Any

import msgspec

SECRET_BYTES_MIN = 6
"""Shorter secrets are not replaced, because they also occur in ordinary text."""


class Redaction:
    """Replaces the values of secrets, given by name, with ``[secret:<name>]``."""

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._secrets: list[tuple[str, str]] = []
        self._in_json: list[bytes] = []
        self.add(values or {})

    def add(self, values: Mapping[str, str]) -> None:
        """Add secrets."""
        for name, value in values.items():
            if len(value.encode()) >= SECRET_BYTES_MIN:
                self._secrets.append((value, f"[secret:{name}]"))
        # The longest first, so that a secret that contains another one is replaced completely.
        self._secrets.sort(key=lambda pair: -len(pair[0]))
        self._in_json = [msgspec.json.encode(secret)[1:-1] for secret, _ in self._secrets]

    def concerns(self, data: bytes) -> bool:
        """Return whether a JSON text contains a secret."""
        # Not `any`: each event would have a generator of its own.
        for secret in self._in_json:  # noqa: SIM110
            if secret in data:
                return True
        return False

    def text(self, text: str) -> str:
        """Replace the secrets in a text."""
        for secret, replacement in self._secrets:
            text = text.replace(secret, replacement)
        return text

    def value(self, value: Any) -> Any:
        """Replace the secrets in a JSON value, also in names of members. A number that is a secret becomes a text."""
        match value:
            case str():
                return self.text(value)
            case dict():
                return {self.text(name): self.value(member) for name, member in value.items()}
            case list():
                return [self.value(member) for member in value]
            case _:
                text = str(value)
                return next((replacement for secret, replacement in self._secrets if secret == text), value)
