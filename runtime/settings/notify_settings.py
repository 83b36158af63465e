"""The settings of notices: the table ``notify`` of the configuration, rules by name.

A rule names the occasions and the receiver: a ``webhook``, ``slack``, a ``slack_channel`` or ``email``.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, TypeAdapter, model_validator

from callboard.lib.durations import seconds_of
from callboard.runtime.settings.rule_settings import RULES_MAX, Duration, Question, RuleName, Several, checked_address
from callboard.runtime.settings.tables import DEFERRED, Reading, Table

SECRET_CHARS_MIN = 8
"""Shorter secrets can be guessed."""

On = Literal["completed", "failed", "cancelled", "expired", "quarantined", "diverged", "budget", "rejected", "waiting"]

_LENT = ("webhook", "slack", "secret")
"""Members that may refer to a variable of the environment."""


class NotifyRule(BaseModel):
    """One rule. ``slack`` is the address of an incoming webhook, ``slack_channel`` where the worker's bot posts.

    Members whose variable is not set are empty.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    on: Annotated[tuple[On, ...], Field(min_length=1), Several]
    longer_than: Duration | None = None
    where: Question = ""
    tenant: str | None = Field(None, pattern=r"\S")
    webhook: SecretStr | None = None
    secret: SecretStr | None = None
    slack: SecretStr | None = None
    slack_channel: str | None = Field(None, pattern=r"\S")
    email: Annotated[tuple[Annotated[str, Field(pattern=r"^[^\s@]+@[^\s@]+$")], ...], Several] = ()

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if sum(map(bool, (self.webhook is not None, self.slack is not None, self.slack_channel, self.email))) != 1:
            raise ValueError("expected exactly one of webhook, slack, slack_channel and email")
        if "waiting" in self.on and len(self.on) > 1:
            raise ValueError("waiting cannot be combined with other occasions: move them to another rule")
        if ("waiting" in self.on) != (self.longer_than is not None):
            raise ValueError("longer_than and on = 'waiting' require each other")
        if "rejected" in self.on and self.where:
            raise ValueError("where does not apply to rejected starts, which are not runs: make two rules")
        if self.secret is not None and self.webhook is None:
            raise ValueError("secret requires a webhook")
        for name, address in (("webhook", self.webhook), ("slack", self.slack)):
            if address is not None and (given := address.get_secret_value()):
                _check_address(name, given)
        if self.secret is not None and 0 < len(self.secret.get_secret_value()) < SECRET_CHARS_MIN:
            raise ValueError(f"secret has fewer than {SECRET_CHARS_MIN} characters")
        return self

    @property
    def wait_s(self) -> float:
        """How long an event has to wait before it is reported, in seconds."""
        return seconds_of(self.longer_than) if self.longer_than is not None else 0.0

    @property
    def to(self) -> str:
        """The kind of the receiver."""
        return "webhook" if self.webhook is not None else "email" if self.email else "slack"

    @property
    def complete(self) -> bool:
        """Whether all referenced variables are set."""
        return all(one is None or one.get_secret_value() for one in (self.webhook, self.slack, self.secret))

    def __str__(self) -> str:
        wait = f" longer than {self.longer_than}" if self.longer_than is not None else ""
        return f"{', '.join(self.on)}{wait} to {self.to}"


def _check_address(name: str, given: str) -> None:
    if not given.startswith(("https://", "http://")):
        raise ValueError(f"{name} must begin with https:// or http://")
    try:
        checked_address(given)
    except ValueError as error:
        raise ValueError(f"{name} {error}") from None


_SHAPE = TypeAdapter(Annotated[dict[RuleName, NotifyRule], Field(max_length=RULES_MAX)], config=DEFERRED)


def _read(given: Any, reading: Reading) -> dict[str, NotifyRule] | None:
    for member in _LENT:
        given = reading.with_secrets(given, member, "sends no notices")
    return reading.validate(_SHAPE, given)


NOTIFY = Table(
    "a table of rules by name, each with `on`, and one of `webhook`, `slack`, `slack_channel`, `email`", _read
)
