"""The settings of webhooks: the table ``webhooks`` of the configuration, with what senders prove themselves by.

A name is ``<definition>/<trigger>``; a value is the secret, or ``${VARIABLE}`` for the one that the environment holds,
or a list of several of which each will do, while a sender changes from one to another. In the environment,
``CALLBOARD_WEBHOOKS`` is the same table in JSON.
"""

from collections.abc import Mapping
from typing import Any, cast

import msgspec
from pydantic import BaseModel, ConfigDict, SecretStr

from callboard.bus.events import Problem
from callboard.runtime.settings.endpoint_settings import variable_of

EXPECTED = "a table of secrets by `definition/trigger`, each one text or a list of them"

SECRET_CHARS_MIN = 8
"""Shorter ones can be guessed."""


class WebhookSecrets(BaseModel):
    """The secrets of one trigger; nothing shows them."""

    model_config = ConfigDict(frozen=True)

    values: tuple[SecretStr, ...] = ()

    def revealed(self) -> list[str]:
        """Return the secrets themselves."""
        return [one.get_secret_value() for one in self.values]

    def __str__(self) -> str:
        return ", ".join(map(str, self.values))


def read_webhooks(
    given: Any, env: Mapping[str, str], source: str
) -> tuple[dict[str, WebhookSecrets] | None, list[Problem], list[Problem]]:
    """Read the table, or its JSON; return the secrets, or None, with what is wrong, and what looks wrong.

    No message repeats a value.
    """
    if isinstance(given, str):
        try:
            given = msgspec.json.decode(given)
        except msgspec.DecodeError as error:
            return None, [Problem("config.value", f"webhooks: is no JSON: {error}", source, expected=EXPECTED)], []
    if not isinstance(given, Mapping):
        return None, [Problem("config.value", "webhooks: is no table", source, expected=EXPECTED)], []
    found: dict[str, WebhookSecrets] = {}
    problems: list[Problem] = []
    warnings: list[Problem] = []
    for name, value in cast("Mapping[str, Any]", given).items():
        given_ones: list[Any] = value if isinstance(value, list) else [value]
        if "/" not in name or not all(isinstance(one, str) for one in given_ones):
            problems.append(Problem("config.value", f"webhooks.{name}: is none", source, expected=EXPECTED))
            continue
        secrets = tuple(_looked_up(name, one, env, source, warnings) for one in given_ones)
        if any(0 < len(one) < SECRET_CHARS_MIN for one in secrets):
            expected = f"at least {SECRET_CHARS_MIN} characters"
            problems.append(Problem("config.value", f"webhooks.{name}: is too short", source, expected=expected))
        found[name] = WebhookSecrets(values=tuple(SecretStr(one) for one in secrets if one))
    return (None if problems else found), problems, warnings


def _looked_up(name: str, value: str, env: Mapping[str, str], source: str, warnings: list[Problem]) -> str:
    variable = variable_of(value)
    if variable and not env.get(variable):
        message = f"webhooks.{name}: nothing is taken in: {variable} is not set"
        warnings.append(Problem("config.unset", message, source, severity="warning"))
    return env.get(variable, "") if variable else value
