"""The settings of webhooks: the table ``webhooks`` of the configuration, with the secrets that authenticate senders.

A name is ``<definition>/<trigger>``; a value is the secret, ``${VARIABLE}`` for the value of a variable, or a list of
several secrets that are all accepted while a sender changes its secret. In the environment,
``CALLBOARD_WEBHOOKS`` is the same table in JSON.
"""

from collections.abc import Mapping
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, SecretStr

from callboard.runtime.settings.tables import Reading, Table

SECRET_CHARS_MIN = 8
"""Shorter secrets can be guessed."""


class WebhookSecrets(BaseModel):
    """The secrets of one trigger; they are masked in all output."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    values: tuple[SecretStr, ...] = ()

    def reveal(self) -> list[str]:
        """Return the secrets themselves."""
        return [one.get_secret_value() for one in self.values]

    def __str__(self) -> str:
        return ", ".join(map(str, self.values))


def _read(given: Any, reading: Reading) -> dict[str, WebhookSecrets] | None:
    if not isinstance(given, Mapping):
        reading.wrong("not a table")
        return None
    found: dict[str, WebhookSecrets] = {}
    for name, value in cast("Mapping[str, Any]", given).items():
        given_ones: list[Any] = value if isinstance(value, list) else [value]
        if "/" not in name or not all(isinstance(one, str) for one in given_ones):
            reading.wrong("not a secret of a trigger", name)
            continue
        secrets = tuple(reading.secret(one, "accepts no requests", name) for one in given_ones)
        if any(0 < len(one) < SECRET_CHARS_MIN for one in secrets):
            reading.wrong("is too short", name, expected=f"at least {SECRET_CHARS_MIN} characters")
        found[name] = WebhookSecrets(values=tuple(SecretStr(one) for one in secrets if one))
    return found


WEBHOOKS = Table("a table of secrets by `definition/trigger`, each one text or a list of them", _read)
